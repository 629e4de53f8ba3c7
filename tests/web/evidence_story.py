"""Rows for the pages, made as a worker makes them: claimed, started and finished through the store's functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from relaxforge.core.evidence import (
    TrainingRunCard,
    TrainingSession,
    TrainingStep,
    TrajectoryStep,
    TrialEvidence,
    Verdict,
)
from relaxforge.credit.summary import summarise
from relaxforge.environments.bundle import pack, read_bundle
from relaxforge.export.trajectory import trajectory_file
from relaxforge.store import environments, evaluations, jobs, training, trials
from relaxforge.store.database import Database

SHOP = Path(__file__).parents[2] / "examples" / "03-corner-shop"
AUTHOR = trials.Author("shop-clerk", "1", "tiny")
ESC = "\x1b"
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n"
    f"{ESC}[31mred{ESC}[0m {ESC}]0;title\x07 nul \ufffd bidi \u202etxt.exe\u202c zero\u200bwidth \x08"
)


def steps(
    count: int, *, differ_at: int | None = None, observation: str = "shelf {number} has 3 apples"
) -> list[TrajectoryStep]:
    """``count`` steps of a clerk; at ``differ_at`` it does something else."""
    made = [TrajectoryStep(1, "mcp", "initialize", "protocol 2025-06-18, tools: look, reserve, place")]
    for number in range(2, count + 1):
        command = f'look {{"shelf": {number}}}' if number != differ_at else 'place {"order": "ORD-8841"}'
        made.append(TrajectoryStep(number, "mcp", command, observation.replace("{number}", str(number))))
    return made


def _state(name: str, parent: str | None, kind: str, message: Any, tokens: int) -> dict[str, Any]:
    answer = kind == "response"
    return {
        "state": name, "parent": parent, "kind": kind, "message": message, "tokens": list(range(tokens)),
        "delivered": True if answer else None, "finish_reason": "stop" if answer else None,
        "weight_versions": [[0, 0, tokens]] if answer else [],
    }  # fmt: skip


def session_line(turns: int = 3) -> bytes:
    """A dump line with one conversation that parts after its first answer."""
    forest, requests = [], []
    parent: str | None = None
    for turn in range(turns):
        asked, answered = f"{turn:02x}obs000000", f"{turn:02x}ans000000"
        messages = [{"role": "user" if turn == 0 else "tool", "content": f"say {turn} <b>please</b>"}]
        answer = {"role": "assistant", "content": f"answer {turn}"}
        forest.append(_state(asked, parent, "observation", messages, 12))
        forest.append(_state(answered, asked, "response", answer, 7))
        timing = {"arrived_s": 0.1 * turn, "generation_s": 0.25}
        request = {"request_id": f"r{turn}", "api": "chat", "state": answered, "http_status": 200, "error": None}
        requests.append({**request, "timing": timing, "normalised": {}, "delivered": True})
        parent = answered if turn != 1 else "00ans000000"
    samples = [{"name": "main", "state": forest[-1]["state"]}]
    return json.dumps({"schema_version": 1, "forest": forest, "requests": requests, "samples": samples}).encode()


def evidence(
    reward: float | None = 1.0,
    *,
    trail: Sequence[TrajectoryStep] = (),
    category: str | None = None,
    stages: dict[str, float] | None = None,
    message: str | None = None,
    log: str = "opened the shop\nplaced ORD-8841\n",
    **more: Any,
) -> TrialEvidence:
    """What is kept of one attempt."""
    verdict = Verdict(reward, "scored" if reward is not None else "not_scored", None, stages or {}, {}, category)
    status = "failed" if category in ("agent_timeout", "agent_error", "worker_lost") else "completed"
    trail = trail or steps(4)
    kept = {"turns": 3, "prompt_tokens": 420, "completion_tokens": 96, "duration_s": 12.5,
            "durations": {"prepare": 0.6, "active": 10.2, "reward": 1.7}, **more}  # fmt: skip
    return TrialEvidence(
        status, verdict, trajectory_file(log, trail), session_line(), len(trail), failure_message=message, **kept
    )


@dataclass
class Story:
    """An environment with one configuration in organization a of a workspace, and a worker that plays its runs."""

    workspace: Any
    worker: Database
    environment_id: UUID = field(init=False)
    version_id: UUID = field(init=False)
    configuration_id: UUID = field(init=False)

    def publish(self, attempts: int = 5, threshold: float = 1.0) -> None:
        bundle = read_bundle(SHOP)

        async def go(tx: Any) -> None:
            environment = await environments.create_environment(
                tx, name="corner-shop", description=bundle.manifest.description
            )
            self.environment_id = environment["id"]
            published = await environments.publish(
                tx, self.environment_id, manifest=asdict(bundle.manifest), files=[file.listed for file in bundle.files],
                digest=bundle.digest, package=pack(bundle),
            )  # fmt: skip
            self.version_id = published.version_id
            configuration = await evaluations.create_configuration(
                tx, environment_id=self.environment_id, name="five attempts", attempt_count=attempts,
                model={"engine": "local", "model": "tiny"}, agent_name="shop-clerk", agent_version="1",
                pass_threshold=threshold,
            )  # fmt: skip
            self.configuration_id = configuration["id"]

        self.workspace.run(self.workspace.a, go)

    def start(self) -> UUID:
        async def go(tx: Any) -> Any:
            return await evaluations.start_run(
                tx, environment_version_id=self.version_id, evaluator_configuration_id=self.configuration_id
            )

        return self.workspace.run(self.workspace.a, go).evaluation_run_id

    def begin(self, run_id: UUID, tasks: int = 1) -> Playing:
        """The worker claims the run's job and writes a row for every attempt."""

        async def go() -> Playing:
            lease = await jobs.claim(self.worker, "test-worker", 600.0, self.workspace.a.organization_id)
            assert lease is not None
            async with self.worker.scope(lease.scope) as tx:
                run = await evaluations.get_run(tx, run_id)
                await tx.run("evaluations.begin_run", run_id=run_id)
                await trials.create_all(tx, lease, run, tasks, AUTHOR)
                planned = await trials.planned(tx, run_id)
            return Playing(
                self, lease, run_id, [plan.trial_id for plan in sorted(planned, key=lambda each: each.number)]
            )

        return self.workspace.loop.run(go())

    def played(self, *outcomes: TrialEvidence, tasks: int = 1) -> Playing:
        """A run whose attempts ended like this, in order; it has ended when all have."""
        playing = self.begin(self.start(), tasks)
        for trial_id, outcome in zip(playing.trials, outcomes, strict=False):
            playing.started(trial_id)
            playing.finish(trial_id, outcome)
        if len(outcomes) == len(playing.trials):
            playing.end()
        return playing


@dataclass
class Playing:
    """A run that a worker holds."""

    story: Story
    lease: Any
    run_id: UUID
    trials: list[UUID]

    def _run(self, go: Any) -> Any:
        async def inside() -> Any:
            async with self.story.worker.scope(self.lease.scope) as tx:
                return await go(tx)

        return self.story.workspace.loop.run(inside())

    def started(self, trial_id: UUID) -> None:
        self._run(lambda tx: trials.start(tx, self.lease, trial_id, f"s-{trial_id}"))

    def phase(self, trial_id: UUID, name: str) -> None:
        self._run(lambda tx: trials.phase(tx, self.lease, trial_id, name))

    def finish(self, trial_id: UUID, outcome: TrialEvidence) -> None:
        self._run(lambda tx: trials.finish(tx, self.lease, trial_id, outcome))

    def lose(self, trial_id: UUID) -> None:
        self._run(lambda tx: trials.lose(tx, self.lease, self.run_id, "its worker was killed", trial_id=trial_id))

    def end(self) -> None:
        async def go(tx: Any) -> None:
            await evaluations.conclude(tx, self.run_id, "succeeded", summarise)
            await jobs.finish(tx, self.lease, "succeeded")

        self._run(go)


def shop_story(story: Story) -> Playing:
    """One run as in the example: placed wrongly, passed, timed out, lost and repeated, passed."""
    playing = story.begin(story.start())
    ends = [
        evidence(0.15, trail=steps(6, differ_at=4), category="partial",
                 stages={"stage_inventory": 1, "stage_reserved": 1, "stage_checkout": 0}),
        evidence(1.0, trail=steps(6), stages={"stage_inventory": 1, "stage_reserved": 1, "stage_checkout": 1}),
        evidence(0.0, category="agent_timeout", message="no end after 120 s of active time", log_truncated=True),
        evidence(0.0, trail=[TrajectoryStep(1, "bash", "cat <notes>", HOSTILE)], category="wrong_result",
                 stages={"stage_inventory": 0}, sanitised={"nul": 1}),
    ]  # fmt: skip
    for trial_id, end in zip(playing.trials, ends, strict=False):
        playing.started(trial_id)
        playing.finish(trial_id, end)
    playing.started(playing.trials[4])
    playing.lose(playing.trials[4])

    async def go(tx: Any) -> Any:
        return await trials.planned(tx, playing.run_id)

    again = playing._run(go)[0].trial_id
    playing.trials.append(again)
    playing.started(again)
    playing.finish(again, evidence(1.0, trail=steps(6), stages={"stage_inventory": 1, "stage_checkout": 1}))
    playing.end()
    return playing


def training_story(workspace: Any, last: int = 30) -> UUID:
    """A training run that learns, fails now and then, and evaluates itself every ten steps."""
    session = TrainingSession("0007-1-2", 7, "0007-1", "train", 1, 3, 0, 0, evidence(0.15, category="partial"))
    numbers = [
        TrainingStep("step", step, "", 0, {
            "rollout/raw_reward": 1 - 0.9 ** step, "rollout/response_length/mean": 80.0 + 3 * step,
            "rollout/response_length/max": 160.0 + 4 * step, "rollout/sessions/completed": 14.0,
            **({"rollout/failures/agent_timeout": 2.0, "rollout/sessions/failed": 2.0} if step % 4 == 0 else {}),
        })
        for step in range(last + 1)
    ]  # fmt: skip
    numbers += [
        TrainingStep("eval", step, "shop", 0, {"eval/shop/reward": 1 - 0.93**step, "eval/shop/passrate/pass@1": 0.5})
        for step in range(0, last + 1, 10)
    ]

    async def go(tx: Any) -> UUID:
        run_id = await training.record_run(tx, TrainingRunCard("key-1", "2026-12-01-sums", {"lr": 1e-6}))
        await training.add_sessions(tx, run_id, [session])
        await training.add_steps(tx, run_id, numbers)
        return run_id

    run_id: UUID = workspace.run(workspace.a, go)
    return run_id
