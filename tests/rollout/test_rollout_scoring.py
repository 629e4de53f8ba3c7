"""The Reward stage: what a Session earned, what its Group does with it, and whose fault it is when there is nothing."""

from dataclasses import replace

import pytest
from rollout_parts import HeardEngine, ask, new_session, run, says, user

from relaxforge.core.errors import ConfigError
from relaxforge.core.sessions import AgentOutput, ExportRecord, FailureCategory, Task
from relaxforge.credit.config import CreditConfig
from relaxforge.forest.select import implicit_context
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.scoring import Scorer

FILTER = "relaxforge.credit.filters.nonzero_std"


@pytest.fixture
def ended(renderer):
    def build(index=0, mode="train", **output):
        async def main():
            engine = HeardEngine(renderer, says("a"))
            task = Task(0, ({"role": "user", "content": "q"},), {"n": 1}, label="42")
            session = new_session(renderer, engine, session_id=f"{mode}-g000000-{index:02d}", mode=mode, task=task)
            await ask(session, user("q"))
            context = implicit_context(session.forest, "linear")
            contexts = tuple(replace(context, name=record.name) for record in output.get("records", ()))
            return Outcome(session, AgentOutput(**output), contexts=contexts or (context,))

        return run(main())

    return build


def score(outcomes, config=None, filter_path=None):
    return run(Scorer(config or CreditConfig(), filter_path).score(outcomes))


@pytest.fixture
def reward_function(tmp_path):
    def write(body):
        path = tmp_path / "reward.py"
        path.write_text(f"def judge(session):\n    {body}\n")
        return CreditConfig(custom_rm_path=f"{path}:judge")

    return write


def test_sessions_are_compared_within_their_group(ended):
    outcomes = [ended(0, reward=1.0), ended(1, reward=0.0), ended(2, reward=0.0)]
    assert score(outcomes).fate == "accepted"
    assert [outcome.reward for outcome in outcomes] == [1.0, 0.0, 0.0]
    assert sum(outcome.advantage for outcome in outcomes) == pytest.approx(0)
    assert outcomes[0].advantage > 0 > outcomes[1].advantage == outcomes[2].advantage


def test_an_evaluation_earns_rewards_and_no_advantage(ended):
    outcome = ended(mode="eval", reward=0.5)
    assert score([outcome]).fate == "accepted"
    assert (outcome.reward, outcome.advantage) == (0.5, None)


def test_a_reward_object_counts_by_its_key_and_is_kept_whole(ended):
    outcome = ended(reward={"score": 0.5, "style": 2.0}, metadata={"hops": 3})
    assert score([outcome], CreditConfig(reward_key="score")).fate == "accepted"
    assert (outcome.reward, outcome.reward_detail) == (0.5, {"score": 0.5, "style": 2.0})
    assert outcome.metadata == {"hops": 3}


def test_reward_and_metadata_of_an_explicit_record_are_the_sessions(ended):
    record = ExportRecord("main", ({"role": "user", "content": "q"},), metadata={"hops": 3}, reward=0.25)
    outcome = ended(records=(record,))
    score([outcome])
    assert (outcome.reward, outcome.metadata) == (0.25, {"hops": 3})


def test_of_several_contexts_the_one_with_a_reward_speaks_for_the_session(ended):
    said = ({"role": "user", "content": "q"},)
    aside = ExportRecord("searcher", said, metadata={"useful": 0.5})
    main = ExportRecord("main", said, metadata={"hops": 3}, reward=0.25)
    outcome = ended(records=(aside, main))
    score([outcome])
    assert (outcome.reward, outcome.metadata) == (0.25, {"hops": 3})
    assert outcome.written(outcome.contexts[0]) == ({"useful": 0.5}, None)


def test_without_a_reward_the_function_is_asked_and_sees_the_conversation_and_the_label(ended, reward_function):
    outcome = ended()
    config = reward_function("return {'right': float(session.answer == 'a'), 'label': session.label}")
    assert score([outcome], CreditConfig(custom_rm_path=config.custom_rm_path, reward_key="right")).fate == "accepted"
    assert (outcome.reward, outcome.reward_detail) == (1.0, {"right": 1.0, "label": "42"})


@pytest.mark.parametrize(
    ("output", "config", "category", "complaint"),
    [
        ({}, CreditConfig(), FailureCategory.BAD_OUTPUT, "the output has no reward and there is no --custom-rm-path"),
        ({"reward": {"a": 1.0}}, CreditConfig(), FailureCategory.BAD_OUTPUT, "say with --reward-key which value"),
        ({"reward": {"a": 1.0}}, CreditConfig(reward_key="b"), FailureCategory.BAD_OUTPUT, "has no 'b'"),
        (
            {"reward": {"a": "high"}},
            CreditConfig(reward_key="a"),
            FailureCategory.BAD_OUTPUT,
            "must be a finite number",
        ),
    ],
)
def test_what_the_agent_wrote_wrong_is_bad_output(ended, output, config, category, complaint):
    sound, faulty = ended(0, reward={"a": 1.0, "b": 1.0}), ended(1, **output)
    scored = score([sound, faulty], config)
    assert scored.fate == "failed"
    assert faulty.failure.category is category
    assert complaint in faulty.failure.message
    assert faulty.failure.message.startswith("Session train-g000000-01: ")
    assert "train-g000000-0" in scored.reason


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("raise KeyError('label')", "raised KeyError: 'label'"),
        ("return 'high'", "returned 'high'"),
        ("return float('nan')", "a reward must be finite"),
    ],
)
def test_a_reward_function_that_raises_or_returns_nonsense_is_a_record(ended, reward_function, body, complaint):
    outcomes = [ended(0), ended(1, reward=1.0)]
    scored = score(outcomes, reward_function(body))
    assert (scored.fate, outcomes[1].reward) == ("failed", 1.0)
    assert outcomes[0].failure.category is FailureCategory.VERIFIER_ERROR
    assert complaint in outcomes[0].failure.message


def test_a_filter_keeps_or_discards_whole_groups_of_training(ended):
    same, different = [ended(0, reward=1.0), ended(1, reward=1.0)], [ended(0, reward=1.0), ended(1, reward=0.0)]
    scored = score(same, filter_path=FILTER)
    assert (scored.fate, scored.reason) == ("filtered", "filtered: --dynamic-sampling-filter-path")
    assert score(different, filter_path=FILTER).fate == "accepted"
    assert score([ended(mode="eval", reward=1.0)], filter_path=FILTER).fate == "accepted"


def test_a_filter_that_raises_ends_the_run_with_its_flag(ended, tmp_path):
    path = tmp_path / "keep.py"
    path.write_text("def keep(rewards):\n    return 1 / 0\n")
    with pytest.raises(ConfigError, match="--dynamic-sampling-filter-path raised ZeroDivisionError"):
        score([ended(reward=1.0)], filter_path=f"{path}:keep")
