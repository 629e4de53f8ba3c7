"""Where a Trial happens: one folder with a workspace, a world, and room for those who make and judge them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from relaxforge.environments.bundle import Bundle, BundleFile, write_files
from relaxforge.environments.manifest import NAME


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one Trial below ``root``, which nobody else may enter. Methods write files: call them in a thread.

    ``workspace`` and ``world`` are the agent's. ``setup`` and ``evaluator`` are copies of the bundle that exist only
    while the world is made and while the Trial is judged; ``given`` holds what an evaluator is told, ``result`` what it
    answers.
    """

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def world(self) -> Path:
        return self.root / "world"

    @property
    def setup(self) -> Path:
        return self.root / "setup"

    @property
    def evaluator(self) -> Path:
        return self.root / "evaluator"

    @property
    def given(self) -> Path:
        return self.root / "given"

    @property
    def result(self) -> Path:
        return self.root / "result"

    def open(self, bundle: Bundle) -> None:
        """Make the workspace and an empty world. Errors: ``OSError``."""
        self.root.mkdir(mode=0o700, parents=True)
        write_files(agent_files(bundle), self.workspace)
        self.world.mkdir(mode=0o700)

    def open_setup(self, bundle: Bundle, task: Mapping[str, Any]) -> None:
        """Make what the world's command runs in. Errors: ``OSError``."""
        write_files(agent_files(bundle), self.setup)
        self.given.mkdir(mode=0o700)
        _write(self.given / "task.json", task)

    def open_evaluator(self, bundle: Bundle, output: bytes, given: Mapping[str, Any]) -> None:
        """Make what the evaluator runs in: the whole bundle, and files about the Trial. Errors: ``OSError``."""
        write_files(bundle.files, self.evaluator)
        shutil.rmtree(self.given, ignore_errors=True)
        for folder in (self.given, self.result):
            folder.mkdir(mode=0o700)
        (self.given / "output.json").write_bytes(output)
        for name, value in given.items():
            _write(self.given / f"{name}.json", value)

    def close(self, folder: Path) -> None:
        """Remove one of the folders."""
        shutil.rmtree(folder, ignore_errors=True)


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


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=True), encoding="utf-8")
