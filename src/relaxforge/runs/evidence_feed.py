"""From the files of a run to a workspace: each line once, in batches, from where the last one ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep
from relaxforge.core.text import Cleaner
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log, read_log
from relaxforge.observe.log import get_logger
from relaxforge.runs.run_files import RunFiles, read_lines
from relaxforge.runs.sent import Sent, source_key
from relaxforge.runs.workspaces import Workspace, WorkspaceRefusal

log = get_logger()

T = TypeVar("T")

BATCH_BYTES, BATCH_LINES = 4 << 20, 32
STEP_LINES = 500
LARGEST_SESSION_BYTES = 32 << 20
"""A Session whose evidence is larger is sent without its dump line; its trajectory is never cut."""


class EvidenceFeed:
    """Sends what a run directory holds. ``secrets`` are values that must never leave, as its agents got them."""

    def __init__(self, run_dir: Path, workspace: Workspace, secrets: Sequence[str]) -> None:
        self._files = RunFiles(run_dir)
        self._workspace = workspace
        self._secrets = tuple(secrets)
        self._recorded = False
        self.sent = Sent(run_dir, workspace.name)

    @property
    def workspace(self) -> str:
        """What people call the workspace."""
        return self._workspace.name

    @property
    def unsent(self) -> int:
        """Whole lines (Sessions and steps) that the workspace does not have yet."""
        return self._files.unread(self.sent.offsets)

    def advance(self) -> bool:
        """Send the next batch; whether there was one. Errors: ``WorkspaceAway``, after which the same batch is next."""
        if not self._recorded:
            self.sent.begin(self._workspace.record(self._card()))
            self._recorded = True
        return any(self._send_sessions(file) for file in self._files.dumps()) or self._send_steps()

    def again(self) -> None:
        """Introduce the run anew before the next batch: the workspace may have come back as another one."""
        self._recorded = False

    def _card(self) -> TrainingRunCard:
        settings = Cleaner(self._secrets).value(self._files.settings)
        configuration = msgspec.to_builtins(settings, str_keys=True)  # TOML has dates, JSON has none
        return TrainingRunCard(source_key(self._files.path), self._files.path.resolve().name, configuration)

    def _send_sessions(self, file: Path) -> bool:
        name = self._files.name_of(file)
        start = self.sent.offsets.get(name, 0)
        if file.stat().st_size <= start:
            return False
        batch = read_lines(file, start, BATCH_BYTES, BATCH_LINES)
        if not batch.lines:
            return False
        sessions, damaged = _readable(batch.lines, self._session, name)
        refused = self._offer(sessions) if sessions else ()
        self.sent.advance(name, batch.end, (*damaged, *refused))
        return True

    def _session(self, line: dict[str, Any]) -> TrainingSession:
        key, group = line["session_id"], line["group_id"]
        evidence = evidence_of(line, self._log(line), secrets=self._secrets)
        if len(evidence.session) + len(evidence.trajectory) > LARGEST_SESSION_BYTES:
            evidence = replace(evidence, session=b"")
        return TrainingSession(
            session_key=key,
            rollout_step=line["rollout_id"],
            group_key=group,
            mode=line["mode"],
            task_index=line["task_index"],
            attempt_no=int(key.removeprefix(f"{group}-").partition("-")[0]) + 1,
            seed=line["seed"],
            world_seed=line.get("world_seed") or 0,
            evidence=evidence,
        )

    def _log(self, line: dict[str, Any]) -> Log:
        """The whole output where its folder was kept, else the end that the failure quotes."""
        path = self._files.log_of(line["session_id"])
        if path.parent.is_dir():
            return read_log(path)
        return Log.of((line.get("failure") or {}).get("log_tail") or "")

    def _offer(self, sessions: Sequence[TrainingSession]) -> tuple[str, ...]:
        """Send Sessions, one by one where all together are refused; the ids of those that were."""
        try:
            self._workspace.add_sessions(sessions)
        except WorkspaceRefusal as error:
            if len(sessions) > 1:
                return tuple(key for session in sessions for key in self._offer([session]))
            log.warning("evidence_refused", session=sessions[0].session_key, error=str(error))
            return (sessions[0].session_key,)
        return ()

    def _send_steps(self) -> bool:
        name = self._files.name_of(self._files.metrics)
        batch = read_lines(self._files.metrics, self.sent.offsets.get(name, 0), BATCH_BYTES, STEP_LINES)
        if not batch.lines:
            return False
        steps, damaged = _readable(batch.lines, _step, name)
        refused: tuple[str, ...] = ()
        try:
            self._workspace.add_steps(steps)
        except WorkspaceRefusal as error:
            log.warning("evidence_refused", session=f"{len(steps)} steps", error=str(error))
            refused = (f"{len(steps)} steps",)
        self.sent.advance(name, batch.end, (*damaged, *refused))
        return True


def _readable(
    lines: Sequence[bytes], read: Callable[[dict[str, Any]], T], name: str
) -> tuple[list[T], tuple[str, ...]]:
    """What the lines of a file say, and which are damaged. A damaged line costs only itself."""
    found: list[T] = []
    damaged = []
    for line in lines:
        try:
            found.append(read(msgspec.json.decode(line, type=dict[str, Any])))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            log.warning("evidence_unreadable", file=name, error=f"{type(error).__name__}: {error}")
            damaged.append(f"a damaged line of {name}")
    return found, tuple(damaged)


def _step(row: dict[str, Any]) -> TrainingStep:
    metrics = {name: value for name, value in row.items() if name not in ("kind", "rollout_id", "incarnation", "time")}
    return TrainingStep(row["kind"], row["rollout_id"], "", row["incarnation"], metrics)
