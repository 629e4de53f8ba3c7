"""Steps from Prepare to Transfer, with agents inside the test."""

import asyncio
import re

import pytest
from agents_inside import Stage, crash, good, hang, leave, silent
from rollout_parts import HeardEngine, ask, refusal, run, says, until, user

from relaxforge.core.errors import CircuitOpen, EngineError, StorageError
from relaxforge.core.samples import flatten
from relaxforge.credit.config import CreditConfig
from relaxforge.engine.scripted.rules import Rule
from relaxforge.rollout.scheduler import Plan


@pytest.fixture
def stage(tmp_path, renderer):
    def build(agent=good, *rules, **rest):
        engine = HeardEngine(renderer, *(rules or [says("a", "b", cycle=True)]))
        return Stage(tmp_path / "sessions", renderer, engine, agent, **rest)

    return build


def index_of(session):
    return int(session.session_id.rpartition("-")[2])


def test_a_step_of_sound_groups_transfers_its_quota_and_keeps_every_session_once(stage):
    async def main():
        here = stage()
        summary = await here.run(Plan(quota=2, started=2, capacity=1), size=3)
        here.check_end()
        assert (summary.groups, summary.rows, dict(summary.statuses)) == (2, 6, {"completed": 6})
        assert [line["group_id"] for line in here.lines] == ["train-g000000"] * 3 + ["train-g000001"] * 3
        assert (
            summary.tokens["sampled"]
            == summary.tokens["trained"]
            == sum(len(generation.ids) for generation in here.engine.sampled.values())
        )
        for group in here.transferred:
            assert [outcome.reward for outcome in group.outcomes] == [1.0] * 3
            for path, outcome in zip(group.samples.contexts, group.outcomes, strict=True):
                (row,) = here.lines[here.kept.index(outcome)]["samples"]
                assert flatten(group.samples, path)[0].tolist() == row["tokens"]
        assert here.conductor.next_number == 2
        for line in here.lines:
            assert set(line["duration_s"]) == {"prepare", "wait", "active", "generation", "reward"}
            assert min(line["duration_s"].values()) >= 0

    run(main())


def test_no_request_is_served_before_every_session_of_the_group_has_asked(stage):
    async def main():
        last_may_ask = asyncio.Event()
        waiting = []

        async def agent(session, launch):
            if index_of(session) == 2:
                await last_may_ask.wait()
            waiting.append(session)
            await good(session, launch)

        here = stage(agent)
        step = asyncio.create_task(here.run(Plan(quota=1, started=1, capacity=1), size=3))
        await until(lambda: len(waiting) >= 2)
        for session in waiting:
            await session.first_request.wait()
        assert here.engine.asked == []
        last_may_ask.set()
        await step
        here.check_end()
        assert len(here.engine.asked) == 6

    run(main())


def test_sessions_stand_in_their_own_order_whichever_ends_first(stage):
    async def main():
        ended = [asyncio.Event() for _ in range(4)]

        async def agent(session, launch):
            index = index_of(session)
            await ask(session, user("q"))
            if index < 3:
                await ended[index + 1].wait()
            leave(launch, {"reward": float(index)})
            ended[index].set()

        here = stage(agent)
        await here.run(Plan(quota=1, started=1, capacity=1), size=4)
        (group,) = here.transferred
        assert [outcome.reward for outcome in group.outcomes] == [0.0, 1.0, 2.0, 3.0]
        assert [path.reward for path in group.samples.contexts] == [0.0, 1.0, 2.0, 3.0]
        assert sum(path.advantage for path in group.samples.contexts) == pytest.approx(0)

    run(main())


def test_a_failed_session_drops_its_group_which_is_replaced_and_kept_as_evidence(stage):
    async def main():
        async def agent(session, launch):
            if session.session_id == "train-g000000-01":
                return await crash(session, launch)
            return await (hang if session.identity.group_id == "train-g000000" else good)(session, launch)

        here = stage(agent)
        summary = await here.run(Plan(quota=1, started=1, capacity=1, max_failures=3), size=3)
        here.check_end()
        assert here.statuses() == {"failed": 1, "dropped": 2, "completed": 3}
        assert dict(summary.failures) == {"agent_error": 1}
        failed = next(line for line in here.lines if line["status"] == "failed")
        assert failed["failure"]["category"] == "agent_error"
        assert failed["failure"]["message"].startswith("Session train-g000000-01: the agent exited with status 3")
        assert {line["drop_reason"] for line in here.lines if line["status"] == "dropped"} == {
            "group_dropped: train-g000000-01 agent_error"
        }
        assert all(line["tokens"]["sampled"] > 0 for line in here.lines)
        assert (len(here.taken), here.returned) == (2, [])

    run(main())


def test_a_step_in_which_nothing_but_failures_come_back_ends_with_the_commonest_reason(stage):
    async def main():
        here = stage(silent)
        with pytest.raises(CircuitOpen) as caught:
            await here.run(Plan(quota=2, started=2, capacity=2, max_failures=3), size=2)
        assert "3 Groups failed in a row" in str(caught.value)
        assert "commonest reason: no_request (3 times), the last one: Session train-g00000" in str(caught.value)
        assert "the agent exited without any model request" in str(caught.value)
        assert "--max-consecutive-failed-groups" in str(caught.value)
        here.check_end()
        assert len(here.lines) == 2 * len(here.taken)

    run(main())


def test_a_reward_function_that_raises_fails_its_sessions_and_trips_with_its_own_category(stage, tmp_path):
    async def main():
        function = tmp_path / "reward.py"
        function.write_text("def judge(session):\n    raise ValueError('no verdict')\n")

        async def agent(session, launch):
            await ask(session, user("q"))

        here = stage(agent, credit=CreditConfig(custom_rm_path=f"{function}:judge"))
        with pytest.raises(CircuitOpen, match=r"verifier_error \(2 times\)"):
            await here.run(Plan(quota=1, started=1, capacity=1, max_failures=2), size=2)
        here.check_end()
        assert here.statuses() == {"failed": 4}
        assert "no verdict" in here.lines[0]["failure"]["message"]

    run(main())


def test_a_filtered_group_is_replaced_and_is_no_failure(stage, tmp_path):
    async def main():
        async def agent(session, launch):
            await ask(session, user("q"))
            same = session.identity.group_id in ("train-g000000", "train-g000001")
            leave(launch, {"reward": 1.0 if same else float(index_of(session))})

        here = stage(agent, filter_path="relaxforge.credit.filters.nonzero_std")
        summary = await here.run(Plan(quota=1, started=1, capacity=1, max_failures=2), size=2)
        here.check_end()
        assert here.statuses() == {"filtered": 4, "completed": 2}
        assert summary.tokens["masked/group_filtered"] > 0

    run(main())


def test_a_filter_that_keeps_nothing_ends_the_step_with_the_rewards_it_saw(stage):
    async def main():
        async def agent(session, launch):
            await ask(session, user("q"))
            leave(launch, {"reward": 0.25})

        here = stage(agent, filter_path="relaxforge.credit.filters.nonzero_std")
        seen = "--dynamic-sampling-filter-path discarded 3 Groups in a row.*most of them \\(3\\) were 2 x 0.25"
        with pytest.raises(CircuitOpen, match=seen):
            await here.run(Plan(quota=1, started=1, capacity=1, max_failures=2, max_filtered=3), size=2)
        here.check_end()
        assert here.statuses() == {"filtered": 6}

    run(main())


def test_surplus_groups_end_with_the_step_and_give_their_tasks_back(stage):
    async def main():
        async def agent(session, launch):
            fast = session.identity.group_id == "train-g000001"
            return await (good if fast else hang)(session, launch)

        here = stage(agent)
        summary = await here.run(Plan(quota=1, started=3, capacity=3), size=2)
        here.check_end()
        assert here.statuses() == {"completed": 2, "dropped": 4}
        assert {line["drop_reason"] for line in here.lines if line["status"] == "dropped"} == {"surplus"}
        assert sorted(task.index for task in here.returned) == [0, 2]
        assert summary.tokens["masked/surplus"] + summary.tokens["undelivered"] > 0

    run(main())


def test_an_evaluation_goes_on_without_its_failed_sessions(stage):
    async def main():
        async def agent(session, launch):
            return await (crash if session.identity.task.index % 2 else good)(session, launch)

        here = stage(agent)
        plan = Plan(quota=4, started=4, capacity=2, replace_lost=False)
        summary = await here.run(plan, size=1, mode="eval")
        here.check_end()
        assert (len(here.taken), dict(summary.statuses)) == (4, {"completed": 2, "failed": 2})
        assert (here.conductor.next_number, {line["mode"] for line in here.lines}) == (0, {"eval"})

    run(main())


def test_an_agent_that_never_asks_runs_into_its_startup_budget(stage):
    async def main():
        async def sleeper(session, launch):
            await asyncio.Event().wait()

        here = stage(sleeper, startup_s=0.05)
        with pytest.raises(CircuitOpen, match="startup_timeout"):
            await here.run(Plan(quota=1, started=1, capacity=1, max_failures=1), size=2)
        here.check_end()
        assert here.statuses()["failed"] >= 1

    run(main())


def test_an_engine_that_answers_nothing_is_our_fault_and_no_agent_outlives_it(stage):
    async def main():
        async def agent(session, launch):
            await ask(session, user("q"))

        here = stage(agent, Rule("down", error="the engine process is gone"))
        with pytest.raises(CircuitOpen, match="provider_error"):
            await here.run(Plan(quota=1, started=1, capacity=1, max_failures=2), size=1)
        here.check_end()
        assert "the engine process is gone" in here.lines[0]["failure"]["message"]

    run(main())


def test_a_step_ends_at_once_when_something_it_cannot_do_without_is_gone(stage):
    async def main():
        gone = asyncio.Event()

        async def lost():
            await gone.wait()
            return EngineError("the engine process is gone")

        async def agent(session, launch):
            await ask(session, user("q"))
            if len(here.engine.sampled) == 6:
                gone.set()
            await asyncio.Event().wait()

        here = stage(agent, vital=[lost])
        with pytest.raises(EngineError, match="the engine process is gone"):
            await here.run(Plan(quota=2, started=3, capacity=3, max_failures=1), size=2)
        here.check_end()
        assert sorted(line["session_id"] for line in here.lines) == [
            f"train-g{group:06d}-{index:02d}" for group in range(3) for index in range(2)
        ]

    run(main())


def test_a_session_whose_agent_got_over_a_provider_error_is_trained(stage):
    async def main():
        async def agent(session, launch):
            await refusal(session, user("bad"))
            return await good(session, launch)

        here = stage(agent, Rule("once", match=re.compile("bad"), error="busy"), says("a", "b", cycle=True))
        await here.run(Plan(quota=1, started=1, capacity=1, max_failures=1), size=2)
        here.check_end()
        assert here.statuses() == {"completed": 2}
        assert [request["error"] for request in here.lines[0]["requests"]] == ["busy (once)", None, None]

    run(main())


def test_a_full_disk_ends_the_step_and_every_agent(stage):
    async def main():
        def keep(outcome):
            raise StorageError("no space left")

        async def agent(session, launch):
            fast = session.identity.group_id == "train-g000000"
            return await (good if fast else hang)(session, launch)

        here = stage(agent)
        with pytest.raises(StorageError, match="no space left"):
            await here.run(Plan(quota=2, started=2, capacity=2), size=2, keep=keep)
        here.check_end()

    run(main())


def test_a_session_that_cannot_be_prepared_ends_the_step_and_the_rest_of_its_group(stage):
    async def main():
        here = stage(hang)
        (here.folder / "train-g000000-01").mkdir(parents=True)
        with pytest.raises(StorageError, match="Session train-g000000-01: cannot prepare"):
            await here.run(Plan(quota=1, started=1, capacity=1), size=3)
        here.check_end()
        assert [line["session_id"] for line in here.lines] == ["train-g000000-00", "train-g000000-02"]

    run(main())


def test_a_group_that_failed_before_it_was_surplus_is_remembered_as_failed(stage):
    async def main():
        dropped, may_end = asyncio.Event(), asyncio.Event()

        async def agent(session, launch):
            if session.session_id == "train-g000001-00":
                return await crash(session, launch)
            if session.session_id == "train-g000001-01":
                await ask(session, user("q"))
                try:
                    await asyncio.Event().wait()
                finally:
                    dropped.set()
                    await may_end.wait()  # It takes its time to die, and the step closes meanwhile.
            await dropped.wait()
            return await good(session, launch)

        here = stage(agent)

        async def transfer(group):
            may_end.set()

        await here.run(Plan(quota=1, started=2, capacity=2), size=2, transfer=transfer)
        here.check_end()
        fates = {line["session_id"]: line["drop_reason"] for line in here.lines}
        assert fates["train-g000001-01"] == "group_dropped: train-g000001-00 agent_error"
        assert here.returned == []

    run(main())


def test_a_cancelled_step_ends_its_agents_and_keeps_their_sessions(stage):
    async def main():
        here = stage(hang)
        step = asyncio.create_task(here.run(Plan(quota=1, started=2, capacity=2), size=2))
        await until(lambda: len(here.engine.sampled) >= 4)
        step.cancel()
        await asyncio.wait([step])
        assert step.cancelled()
        here.check_end()
        assert here.statuses() == {"dropped": 4}
        assert len(here.returned) == 2

    run(main())


def test_news_of_a_group_that_ended_while_transfer_was_blocked_harms_nobody(stage):
    """Its first requests and its failure wait in the queue behind a transfer that has no room."""

    async def main():
        room, full, crashed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        here = stage()

        async def agent(session, launch):
            if session.identity.group_id == "train-g000001":
                await full.wait()
                session.refused("chat", ValueError("a request that was no request"))
                await asyncio.sleep(0)
                crashed.set()
                return 3
            return await good(session, launch)

        async def transfer(group):
            here.transferred.append(group)
            if len(here.transferred) == 1:
                full.set()
                await room.wait()

        here.runner._agent = agent
        step = asyncio.create_task(here.run(Plan(quota=2, started=2, capacity=2), size=1, transfer=transfer))
        await crashed.wait()
        await until(lambda: len(here.lines) >= 2)
        room.set()
        await step
        here.check_end()
        assert here.statuses() == {"completed": 2, "failed": 1}

    run(main())


def test_the_state_for_debugging_names_groups_and_hides_secrets(stage):
    async def main():
        here = stage(hang)
        step = asyncio.create_task(here.run(Plan(quota=1, started=1, capacity=1), size=2))
        await until(lambda: len(here.engine.sampled) >= 2)
        state = here.conductor.debug_state()
        secrets = [session.identity.credential.secret for session in here.registry.live.values()]
        step.cancel()
        await asyncio.wait([step])
        assert (state["active_rollout_id"], state["resident"], state["runtime"], state["debt"]) == (0, 1, 1, 1)
        assert set(state["groups"]["train-g000000"]) == {"train-g000000-00", "train-g000000-01"}
        assert not any(secret in str(state) for secret in secrets)
        assert here.conductor.debug_state() == {"active_rollout_id": None}

    run(main())
