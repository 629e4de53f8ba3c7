"""Training runs in the store: every Session once, whatever it was worth, and never another organization's."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep, TrialEvidence, Verdict
from relaxforge.store import artifacts, training, trials
from relaxforge.store.errors import InvalidError, MissingError

CARD = TrainingRunCard("key", "run", {"model": "tiny"})


def session(number, *, verdict=None, status="completed", **values):
    evidence = TrialEvidence(
        status, verdict or Verdict(0.5, "scored", "0.5", {"stage_a": 1}), b'{"schemaVersion":1}', b'{"line":1}', 3,
        durations={"active": 1.0},
    )  # fmt: skip
    key = f"train-g{number:06d}-00"
    defaults = {"rollout_step": number, "group_key": key[:-3], "mode": "train", "task_index": 0, "attempt_no": 1}
    return TrainingSession(key, **(defaults | {"seed": 7, "world_seed": 0} | values), evidence=evidence)


FAILED = session(2, status="failed", verdict=Verdict(None, "not_scored", None, {}, {}, "agent_error"))
OUTSIDE = session(3, verdict=Verdict(None, "out_of_range", "1.5"))


@pytest.fixture
def within(on_loop, app_database, two_organizations):
    """Calls a function of the store in a transaction of its own."""

    def run(function, *args, scope=two_organizations.a, **values):
        async def go():
            async with app_database.scope(scope) as tx:
                return await function(tx, *args, **values)

        return on_loop(go())

    return run


def test_sessions_are_kept_once_with_artifacts_and_rollouts(within):
    run_id = within(training.record_run, CARD)
    assert within(training.add_sessions, run_id, [session(1), FAILED, session(1)]) == 2
    assert within(training.add_sessions, run_id, [session(1), FAILED, OUTSIDE]) == 1
    rows = within(trials.list_trials, before=None, limit=10, training_run_id=run_id)
    assert [(row["trial_number"], row["session_key"], row["status"], row["reward"]) for row in rows] == [
        (3, "train-g000003-00", "completed", None),
        (2, "train-g000002-00", "failed", None),
        (1, "train-g000001-00", "completed", 0.5),
    ]
    assert [row["reward_status"] for row in rows] == ["out_of_range", "not_scored", "scored"]
    assert rows[0]["raw_reward"] == "1.5"
    assert (rows[1]["failure_category"], rows[2]["stages"]) == ("agent_error", {"stage_a": 1})
    assert rows[2]["model_name"] == "tiny"
    assert all(row["rollout_id"] for row in rows)
    kept = within(artifacts.get, rows[2]["trajectory_artifact_id"])
    assert (kept.name, kept.body) == ("trial-1-trajectory.json", b'{"schemaVersion":1}')
    assert within(artifacts.get, rows[2]["session_artifact_id"]).body == b'{"line":1}'


def test_two_senders_at_once_double_nothing(on_loop, app_database, two_organizations, within):
    run_id = within(training.record_run, CARD)
    sessions = [session(number) for number in range(20)]

    async def send():
        async with app_database.scope(two_organizations.a) as tx:
            return await training.add_sessions(tx, run_id, sessions)

    async def both():
        return await asyncio.gather(send(), send(), send())

    assert sorted(on_loop(both())) == [0, 0, 20]
    rows = within(trials.list_trials, before=None, limit=100, training_run_id=run_id)
    assert sorted(row["trial_number"] for row in rows) == list(range(1, 21))


def test_a_run_that_comes_again_is_the_same_run(within, two_organizations):
    run_id = within(training.record_run, CARD)
    assert within(training.record_run, replace(CARD, name="renamed")) == run_id
    assert within(training.get_run, run_id)["name"] == "renamed"
    assert within(training.record_run, CARD, scope=two_organizations.b) != run_id


def test_a_session_that_was_too_large_has_no_session_artifact(within):
    run_id = within(training.record_run, CARD)
    large = session(1)
    within(training.add_sessions, run_id, [replace(large, evidence=replace(large.evidence, session=b""))])
    [row] = within(trials.list_trials, before=None, limit=10, training_run_id=run_id)
    assert (row["session_artifact_id"], row["trajectory_artifact_id"] is None) == (None, False)


@pytest.mark.parametrize("bad", [session(9, verdict=Verdict(1.5, "scored")), session(9, seed=2**70)])
def test_a_session_that_cannot_be_stored_is_named_and_nothing_of_its_batch_stays(within, bad):
    run_id = within(training.record_run, CARD)
    with pytest.raises(InvalidError, match="train-g000009-00"):
        within(training.add_sessions, run_id, [session(1), bad])
    assert within(trials.list_trials, before=None, limit=10, training_run_id=run_id) == []


def test_another_organizations_run_does_not_exist(within, two_organizations):
    run_id = within(training.record_run, CARD)
    for call in (
        lambda: within(training.add_sessions, run_id, [session(1)], scope=two_organizations.b),
        lambda: within(training.add_steps, run_id, [], scope=two_organizations.b),
        lambda: within(training.get_run, run_id, scope=two_organizations.b),
        lambda: within(training.get_run, uuid4()),
    ):
        with pytest.raises(MissingError):
            call()
    assert within(training.list_runs, before=None, limit=10, scope=two_organizations.b) == []


def test_curves_show_the_newest_attempt_at_each_step(within):
    run_id = within(training.record_run, CARD)
    steps = [TrainingStep("step", step, "", 0, {"reward": step / 10, "loss": None}) for step in range(3)]
    steps.append(TrainingStep("eval", 0, "", 0, {"eval/x/reward": 0.25}))
    assert within(training.add_steps, run_id, steps) == 4
    assert within(training.add_steps, run_id, [*steps, TrainingStep("step", 2, "", 1, {"reward": 0.9})]) == 1
    assert within(training.metric_names, run_id) == ["eval/x/reward", "loss", "reward"]
    curve = within(training.series, run_id, ["reward", "loss"])
    assert [(row["step"], row["incarnation"], row["metrics"]) for row in curve] == [
        (0, 0, {"reward": 0.0, "loss": None}),
        (1, 0, {"reward": 0.1, "loss": None}),
        (2, 1, {"reward": 0.9}),
    ]
    [evaluation] = within(training.series, run_id, ["eval/x/reward"], "eval")
    assert evaluation["metrics"] == {"eval/x/reward": 0.25}
    assert within(training.get_run, run_id)["last_step"] == 2


def test_outcomes_are_counted_and_runs_are_listed_page_by_page(within):
    run_ids = [within(training.record_run, TrainingRunCard(f"key {number}", f"run {number}")) for number in range(3)]
    within(training.add_sessions, run_ids[1], [session(1), FAILED, session(4, mode="eval")])
    counted = [tuple(row.values()) for row in within(training.get_run, run_ids[1])["outcomes"]]
    assert counted == [
        ("eval", "completed", None, 1), ("train", "completed", None, 1), ("train", "failed", "agent_error", 1)
    ]  # fmt: skip
    newest = within(training.list_runs, before=None, limit=2)
    assert [row["id"] for row in newest] == [run_ids[2], run_ids[1]]
    assert newest[1]["session_count"] == 3
    last = newest[-1]
    assert [row["id"] for row in within(training.list_runs, before=(last["created_at"], last["id"]), limit=2)] == [
        run_ids[0]
    ]
