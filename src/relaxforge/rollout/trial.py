"""What surrounds the agent of an environment version: its workspace, its world, and the evaluator after it.

World and evaluator are commands like the agent's: they run through the same runner and inside the same kind of sandbox,
each with its own time limit, and nothing of them outlives it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import base_environment
from relaxforge.agents.folder import discard_folder
from relaxforge.agents.output import MAX_OUTPUT_BYTES
from relaxforge.agents.processes import MARKER
from relaxforge.agents.sandbox import Sandbox
from relaxforge.agents.text import log_tail, read_regular
from relaxforge.core.errors import (
    AgentExecutionError,
    EvaluatorError,
    StorageError,
)
from relaxforge.core.evidence import Verdict
from relaxforge.core.ports import AgentRunner
from relaxforge.core.sessions import AgentExit, AgentLaunch, FailureCategory
from relaxforge.environments.bundle import Bundle, BundleFile
from relaxforge.environments.manifest import EvaluatorPart, Manifest, WorldPart
from relaxforge.environments.place import Desk, Place, agent_files
from relaxforge.environments.verdict import MOST_BYTES, OUTPUT, STAGE, read_verdict
from relaxforge.export.trajectory import steps_of
from relaxforge.observe.log import get_logger
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import said_and_done
from relaxforge.rollout.session import Session, SessionIdentity

log = get_logger()

SHORTEST_SECRET = 8
"""Characters from which on a secret's value is masked in what a command said; shorter ones hit ordinary text."""


def agents_of(manifest: Manifest, config: AgentConfig) -> AgentConfig:
    """The operator's ``config`` with the agent of an environment version."""
    agent = manifest.agent
    return replace(
        config,
        agent_command=agent.command,
        agent_cwd="/",
        agent_env=(*config.agent_env, *agent.env),
        agent_timeout=agent.timeout_s,
        agent_startup_timeout=agent.startup_timeout_s,
    )


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment version in use. Its folders lie beside those of the Sessions, in ``sessions_dir``.

    ``agents`` are the operator's settings (not those of ``agents_of``), ``secrets`` the values of the variables that
    the manifest requires.
    """

    bundle: Bundle
    runner: AgentRunner
    agents: AgentConfig
    sessions_dir: Path
    sandbox: Sandbox
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def evaluator(self) -> EvaluatorPart | None:
        return self.bundle.manifest.evaluator

    async def prepare(self, session: Session, launch: AgentLaunch) -> AgentLaunch:
        """Lay out a workspace, let the world be made, and give the launch of the agent its place in them.

        Errors: ``AgentError`` ``env_setup`` with the end of what the world command said, ``StorageError``.
        """
        place, manifest = self._place(session.session_id), self.bundle.manifest
        await self._written(place.open, self.bundle)
        if manifest.world is not None:
            await self._set_up(session.identity, place, manifest.world)
        env = launch.env | self._variables(place, session.identity.seed)
        inside = replace(launch, cwd=str(place.workspace / manifest.agent.cwd), env=env)
        return self.sandbox.around(inside, write=(str(place.workspace), str(place.world), launch.io_dir), models=True)

    async def evaluate(self, outcome: Outcome) -> Verdict:
        """What the evaluator says about a Session of which no process is left.

        Errors: ``EvaluatorError``, ``AgentError`` when it cannot be started, ``StorageError``.
        """
        evaluator, identity = self.evaluator, outcome.session.identity
        assert evaluator is not None  # noqa: S101  (the caller looked)
        given = await asyncio.to_thread(_told, outcome)
        async with self._desk(identity, "evaluator", self.bundle.files, given) as desk:
            verdict = await self._verdict(self._judge(identity, desk, evaluator), desk, evaluator)
        if undeclared := sorted(verdict.stages.keys() - set(evaluator.stages)):
            log.info("stages_undeclared", session=identity.session_id, stages=",".join(undeclared))
        return verdict

    def discard(self, session_id: str) -> None:
        """Remove everything of one Trial. Removes files: call it in a thread."""
        discard_folder(self._place(session_id).root)

    @property
    def _folder(self) -> Path:
        return Path(os.path.realpath(self.sessions_dir))

    def _place(self, session_id: str) -> Place:
        return Place(self._folder / f"{session_id}.trial")

    @asynccontextmanager
    async def _desk(
        self, identity: SessionIdentity, who: str, files: Iterable[BundleFile], given: Mapping[str, Any]
    ) -> AsyncIterator[Desk]:
        # Nobody can know its name before: an agent without walls could have put something in its place.
        name = tempfile.mkdtemp(prefix=f"{identity.session_id}.{who}-", dir=self._folder)
        try:
            desk = Desk(Path(name))
            await self._written(desk.open, files, given)
            yield desk
        finally:
            await asyncio.to_thread(discard_folder, Path(name))

    async def _set_up(self, identity: SessionIdentity, place: Place, world: WorldPart) -> None:
        task, files = {"task": identity.task.session_input}, agent_files(self.bundle)
        async with self._desk(identity, "world", files, task) as desk:
            launch = self._launch(identity, desk, world.command, RELAX_TASK_JSON=str(desk.told("task")))
            confined = self.sandbox.around(
                launch, read=(str(desk.given),), write=(str(desk.bundle), str(place.world), str(desk.io))
            )
            ended = await self._run(confined, world.timeout_s)
            if what := _unsound(ended, world.timeout_s, "world.timeout_s"):
                message = f"Session {identity.session_id}: the world command {what}"
                raise AgentExecutionError(message, FailureCategory.ENV_SETUP, self._said(confined))

    def _judge(self, identity: SessionIdentity, desk: Desk, evaluator: EvaluatorPart) -> AgentLaunch:
        command = evaluator.command or shlex.join(
            (sys.executable, "-m", "relaxforge.environments.evaluate", evaluator.folder, evaluator.python)
        )
        place, told = self._place(identity.session_id), ("input", "output", "steps", "label")
        launch = self._launch(
            identity, desk, command,
            RELAX_WORKSPACE_DIR=str(place.workspace),
            **{f"RELAX_{name.upper()}_JSON": str(desk.told(name)) for name in told},
            **{OUTPUT: str(desk.result / "verdict.json")},
        )  # fmt: skip
        write = (desk.bundle, desk.result, desk.io, place.workspace, place.world)
        return self.sandbox.around(launch, read=(str(desk.given),), write=map(str, write))

    async def _verdict(self, launch: AgentLaunch, desk: Desk, evaluator: EvaluatorPart) -> Verdict:
        ended = await self._run(launch, evaluator.timeout_s)
        try:
            if what := _unsound(ended, evaluator.timeout_s, "evaluator.timeout_s"):
                raise EvaluatorError(f"the evaluator {what}")
            try:
                data = await asyncio.to_thread(read_regular, desk.result / "verdict.json", MOST_BYTES + 1)
            except OSError as error:
                raise EvaluatorError(f"what the evaluator wrote to {OUTPUT} cannot be read: {error}") from None
            return read_verdict(data)
        except EvaluatorError as error:
            raise EvaluatorError(str(error), self._said(launch)) from None

    def _launch(self, identity: SessionIdentity, desk: Desk, command: str, **more: str) -> AgentLaunch:
        given = identity.task.world_seed
        seed = identity.seed if given is None else given
        variables = self._variables(self._place(identity.session_id), seed)
        env = base_environment(self.agents, os.environ) | variables | more | {MARKER: str(desk.io)}
        return AgentLaunch(desk.root.name, command, str(desk.bundle), str(desk.io), env)

    def _variables(self, place: Place, seed: int) -> dict[str, str]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return {"PATH": path, **self.secrets, "RELAX_WORLD_DIR": str(place.world), "RELAX_SEED": str(seed)}

    async def _run(self, launch: AgentLaunch, timeout_s: float) -> AgentExit | None:
        """Until the command and everything it started are gone; ``None`` when its time was over."""
        process = await self.runner.launch(launch)
        try:
            return await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            await process.kill()
            return None
        except asyncio.CancelledError:
            await process.kill()
            raise

    def _said(self, launch: AgentLaunch) -> str:
        text = log_tail(launch.log_path, self.agents.log_tail_bytes, "")
        for value in sorted(self.secrets.values(), key=len, reverse=True):
            if len(value) >= SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text

    async def _written(self, write: Callable[..., None], *args: Any) -> None:
        try:
            await asyncio.to_thread(write, *args)
        except OSError as error:
            where = error.filename or self.sessions_dir
            raise StorageError(f"{where}: a Trial cannot be laid out: {error.strerror or error}") from error


def own_verdict(outcome: Outcome) -> Verdict:
    """The verdict of an environment without an evaluator: what the agent itself says it earned."""
    reward, detail = outcome.reward, outcome.reward_detail
    if reward is None:
        return Verdict(None, "not_scored")
    written = detail if isinstance(detail, dict) else {}
    stages = {
        key: value
        for key, value in written.items()
        if key.startswith(STAGE) and isinstance(value, int | float) and not isinstance(value, bool)
    }
    sound = 0 <= reward <= 1
    return Verdict(reward if sound else None, "scored" if sound else "out_of_range", repr(reward), stages)


def settle(verdict: Verdict, outcome: Outcome) -> Verdict:
    """The verdict that is kept: with its failure category, and 0 for an agent that failed and earned no score.

    The evaluator's own category comes first, then why the Session failed, then what the reward says.
    """
    failure, reward, status = outcome.failure, verdict.reward, verdict.reward_status
    graded = outcome.session.identity.mode == "eval" and failure is not None and not failure.category.infrastructure
    if graded and status == "not_scored":
        reward, status = 0.0, "scored"
    category = verdict.failure_category or (str(failure.category) if failure else None)
    if category is None and reward is not None and reward < 1:
        category = str(FailureCategory.PARTIAL if reward > 0 else FailureCategory.WRONG_RESULT)
    return replace(verdict, reward=reward, reward_status=status, failure_category=category)


def _told(outcome: Outcome) -> dict[str, Any]:
    """What an evaluator is told about a Session."""
    task, output = outcome.session.identity.task, b""
    if outcome.folder is not None:
        with suppress(OSError):  # What the agent put there is no file; to an evaluator that is no output.
            output = read_regular(outcome.folder / "session_output.json", MAX_OUTPUT_BYTES) or b""
    steps = [asdict(step) for step in steps_of(said_and_done(outcome))]
    return {"input": task.session_input, "output": output, "steps": steps, "label": task.label}


def _unsound(ended: AgentExit | None, timeout_s: float, setting: str) -> str:
    """What is wrong with how a command ended; "" when nothing is."""
    if ended is None:
        return f"was ended after {timeout_s:g} s ({setting})"
    if ended.signal is not None:
        return f"was killed by signal {ended.signal}"
    return f"exited with status {ended.code}" if ended.code else ""
