"""What the numbers of a step and of an evaluation count, and what they leave out."""

import json

import pytest
from rollout_parts import HeardEngine, ask, new_session, run, says, user

from relaxforge.core.sessions import Failure, FailureCategory, SessionStatus, Task
from relaxforge.credit.config import CreditConfig
from relaxforge.credit.group import group_advantages
from relaxforge.forest.select import Context
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.step import StepSummary
from relaxforge.runs.metrics import eval_metrics, passrate_metrics, rollout_metrics

AGENTS_FAULT = Failure(FailureCategory.AGENT_ERROR, "exit 3")
OUR_FAULT = Failure(FailureCategory.PROVIDER_ERROR, "engine down")


@pytest.fixture
def ended(renderer):
    """An ended Session with ``contexts`` exported answers, each of which is one row."""

    def build(reward=None, *, contexts=1, task=0, **rest):
        async def main():
            engine = HeardEngine(renderer, says("a", "bb", "ccc"))
            session = new_session(renderer, engine, mode="eval", task=Task(task, None, {"n": task}))
            for number in range(contexts):
                await ask(session, user(f"q{number}"))
            exported = [Context(str(number), state) for number, state in enumerate(session.forest.responses)]
            return Outcome(session, contexts=tuple(exported), reward=reward, **rest)

        return run(main())

    return build


def by_task(*outcomes):
    tasks = {}
    for outcome in outcomes:
        tasks.setdefault(outcome.session.identity.task.index, []).append(outcome)
    return tasks


# A rollout step


def test_a_session_counts_once_in_the_reward_however_many_rows_it_fills(ended):
    metrics = rollout_metrics([ended(1.0, contexts=3), ended(0.0)], StepSummary(0))
    assert metrics["rollout/raw_reward"] == 0.5
    assert metrics["num_turn/mean"] == 1.0


def test_baselines_are_per_session_and_rows_change_nothing():
    rewards = {"s0": 1.0, "s1": 0.0, "s2": 0.0}
    advantages = group_advantages(rewards, CreditConfig())
    assert sum(advantages.values()) == pytest.approx(0)
    assert advantages["s1"] == advantages["s2"] < 0 < advantages["s0"]


def test_helper_values_and_metadata_have_their_published_names(ended):
    outcomes = [
        ended(1.0, reward_detail={"score": 1.0, "style": 0.5, "note": "x"}, metadata={"hops": 3, "tag": "a"}),
        ended(0.0, reward_detail={"score": 0.0, "style": 1.5}, metadata={"hops": 5}),
    ]
    metrics = rollout_metrics(outcomes, StepSummary(0))
    assert [metrics[f"rollout/style/{kind}"] for kind in ("mean", "median", "max", "min")] == [1.0, 1.0, 1.5, 0.5]
    assert [metrics[f"hops/{kind}"] for kind in ("mean", "median", "max", "min")] == [4.0, 4.0, 5.0, 3.0]
    assert not any("note" in name or "tag" in name for name in metrics)


def test_numbers_that_fit_no_float_are_left_out(ended):
    metrics = rollout_metrics([ended(1.0, metadata={"huge": 10**400, "n": 1})], StepSummary(0))
    assert "huge/mean" not in metrics
    assert metrics["n/mean"] == 1.0


def test_counts_of_the_whole_step_stand_beside_the_trained_sessions(ended):
    summary = StepSummary(0, groups=1, rows=2)
    summary.statuses.update([SessionStatus.COMPLETED, SessionStatus.FAILED])
    summary.failures.update(["agent_error"])
    summary.tokens.update({"sampled": 10, "trained": 6, "masked/session_failed": 4})
    metrics = rollout_metrics([ended(1.0)], summary)
    assert metrics["rollout/sessions/failed"] == metrics["rollout/failures/agent_error"] == 1.0
    assert (metrics["tokens/sampled"], metrics["tokens/masked/session_failed"]) == (10.0, 4.0)
    assert metrics["rollout/truncated_ratio"] == 0.0
    assert all(isinstance(value, float | int) for value in metrics.values())
    assert json.dumps(metrics, allow_nan=False)


def test_a_step_without_any_trained_session_has_counts_and_no_means():
    metrics = rollout_metrics([], StepSummary(0))
    assert metrics["rollout/groups"] == 0.0
    assert "rollout/raw_reward" not in metrics


# An evaluation


def test_failures_of_the_agent_count_zero_and_failures_of_ours_are_left_out_with_coverage(ended):
    outcomes = [ended(1.0), ended(None, failure=AGENTS_FAULT), ended(None, failure=OUR_FAULT), ended(0.5)]
    metrics = eval_metrics("x", by_task(*outcomes), samples=1)
    assert metrics["eval/x/reward"] == pytest.approx(1.5 / 3)
    assert metrics["eval/x/accuracy"] == pytest.approx(1 / 3)
    assert (metrics["eval/x/attempted"], metrics["eval/x/scored"], metrics["eval/x/coverage"]) == (4.0, 3.0, 0.75)
    assert metrics["eval/x/failures/agent_error"] == metrics["eval/x/failures/provider_error"] == 1.0


def test_an_evaluation_in_which_everything_was_our_fault_has_no_accuracy(ended):
    metrics = eval_metrics("x", by_task(ended(None, failure=OUR_FAULT)), samples=1)
    assert "eval/x/accuracy" not in metrics
    assert metrics["eval/x/coverage"] == 0.0


@pytest.mark.parametrize("category", FailureCategory)
def test_every_category_is_either_a_zero_or_no_score(ended, category):
    metrics = eval_metrics("x", by_task(ended(None, failure=Failure(category, "why"))), samples=1)
    assert metrics.get("eval/x/reward") == (None if category.infrastructure else 0.0)


def test_pass_at_k_counts_failures_and_ignores_tasks_with_too_few_scores(ended):
    tasks = by_task(
        ended(1.0, task=0),
        ended(None, task=0, failure=AGENTS_FAULT),
        ended(1.0, task=1),
        ended(None, task=1, failure=OUR_FAULT),
    )
    metrics = eval_metrics("x", tasks, samples=2)
    assert metrics["eval/x/passrate/pass@1"] == pytest.approx((0.5 + 1.0) / 2)
    assert metrics["eval/x/passrate/pass@2"] == 1.0
    assert metrics["eval/x/passrate/pass^2"] == 0.0


def test_pass_at_k_is_left_out_where_nothing_is_known(ended):
    assert passrate_metrics([[ended(None, failure=OUR_FAULT)]]) == {}
    assert set(passrate_metrics([[ended(1.0)] * 5])) == {
        f"passrate/{kind}{k}" for kind in ("pass@", "pass^") for k in (1, 2, 4)
    }
