"""Where a Trial happens: a workspace and a world for its agent, and a desk for whoever makes or judges them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from relaxforge.environments.bundle import Bundle, BundleFile, write_files
from relaxforge.environments.manifest import NAME


@dataclass(frozen=True, slots=True)
class Place:
    """The agent's folders below ``root``, which nobody else may enter. ``open`` writes files: call it in a thread."""

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def world(self) -> Path:
        return self.root / "world"

    def open(self, bundle: Bundle) -> None:
        """Make the workspace and an empty world. Errors: ``OSError``."""
        self.root.mkdir(mode=0o700, parents=True)
        write_files(agent_files(bundle), self.workspace)
        self.world.mkdir(mode=0o700)


@dataclass(frozen=True, slots=True)
class Desk:
    """A new folder that exists while the world's command or the evaluator works, and that no agent ever saw.

    ``bundle`` is a pristine copy, ``given`` what the command is told, ``result`` where it answers, ``io`` its log.
    """

    root: Path

    @property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @property
    def given(self) -> Path:
        return self.root / "given"

    @property
    def result(self) -> Path:
        return self.root / "result"

    @property
    def io(self) -> Path:
        return self.root / "io"

    def open(self, files: Iterable[BundleFile], given: Mapping[str, Any]) -> None:
        """Lay it out; bytes are given as they are, other values as JSON. Errors: ``OSError``."""
        write_files(files, self.bundle)
        for folder in (self.given, self.result, self.io):
            folder.mkdir(mode=0o700)
        for name, value in given.items():
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.told(name).write_bytes(content)

    def told(self, name: str) -> Path:
        """The file of one thing that the command is told."""
        return self.given / f"{name}.json"


def agent_files(bundle: Bundle) -> tuple[BundleFile, ...]:
    """What an agent and its world see of a bundle: not the evaluator, not the tasks with their labels."""
    manifest = bundle.manifest
    hidden = {NAME, str(PurePosixPath(manifest.tasks.path))}
    folder = manifest.evaluator.folder if manifest.evaluator else None
    return tuple(
        file
        for file in bundle.files
        if file.path not in hidden and not (folder and PurePosixPath(file.path).is_relative_to(folder))
    )
