"""What every Session of a run is given: seed, budgets and sampling."""

import pytest
from rollout_parts import HeardEngine, says

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError
from relaxforge.core.sessions import Task
from relaxforge.forest.config import HistoryConfig
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.factory import SessionFactory
from relaxforge.rollout.registry import SessionRegistry

TASK = Task(0, None, {"n": 1})


@pytest.fixture
def factory(renderer):
    def build(*, max_context=None, incarnation=0, **config):
        engine = HeardEngine(renderer, says("a"), max_context=max_context)
        agents = AgentConfig(agent_timeout=90.0, agent_startup_timeout=9.0)
        history = HistoryConfig()
        return SessionFactory(
            RolloutConfig(**config), agents, history, engine, renderer, SessionRegistry(), incarnation
        )

    return build


def seeds(group):
    return [session.identity.seed for session in group.sessions]


def test_seeds_differ_between_sessions_groups_and_runs_and_are_the_same_after_a_restart(factory):
    first = seeds(factory().group(0, "train", TASK, 4))
    assert (
        len({*first, *seeds(factory().group(1, "train", TASK, 4)), *seeds(factory().group(0, "eval", TASK, 4))}) == 12
    )
    assert seeds(factory(rollout_seed=43).group(0, "train", TASK, 4)) != first
    assert seeds(factory(incarnation=2).group(0, "train", TASK, 4)) == first


def test_a_task_with_a_seed_of_its_own_gives_it_to_its_sessions(factory):
    assert seeds(factory().group(0, "eval", Task(0, None, {"n": 1}, seed=40), 2)) == [40, 41]


def test_sessions_are_registered_under_names_that_an_earlier_incarnation_never_used(factory):
    here = factory(incarnation=1)
    group = here.group(3, "train", TASK, 2)
    assert [session.session_id for session in group.sessions] == ["train-g000003-00-i1", "train-g000003-01-i1"]
    assert here.registry.live.keys() == {session.session_id for session in group.sessions}
    assert len({session.identity.credential.secret for session in group.sessions}) == 2


@pytest.mark.parametrize(
    ("configured", "engine", "limit"), [(None, None, None), (100, None, 100), (None, 50, 50), (100, 50, 50)]
)
def test_the_context_limit_is_the_smaller_of_the_configured_and_the_engines(factory, configured, engine, limit):
    here = factory(rollout_max_context_len=configured, max_context=engine)
    (session,) = here.group(0, "train", TASK, 1).sessions
    assert session.limits.context == limit
    assert (session.limits.active_s, session.limits.startup_s) == (90.0, 9.0)


def test_an_evaluation_samples_as_training_does_unless_told_otherwise(factory):
    same = factory(rollout_temperature=0.7, rollout_top_k=5, rollout_max_response_len=11)
    for mode in ("train", "eval"):
        (session,) = same.group(0, mode, TASK, 1).sessions
        assert (session._sampling.temperature, session._sampling.top_k, session.limits.response) == (0.7, 5, 11)
    other = factory(
        eval_temperature=0.0, eval_top_p=0.5, eval_top_k=0, eval_max_response_len=3, eval_max_context_len=30
    )
    (session,) = other.group(0, "eval", TASK, 1).sessions
    assert (session._sampling.temperature, session._sampling.top_p, session._sampling.top_k) == (0.0, 0.5, 0)
    assert (session.limits.response, session.limits.context) == (3, 30)
    (session,) = other.group(0, "train", TASK, 1).sessions
    assert (session._sampling.temperature, session.limits.response, session.limits.context) == (1.0, 1024, None)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"rollout_batch_size": 0}, "--rollout-batch-size must be at least 1, got 0"),
        ({"n_samples_per_prompt": -1}, "--n-samples-per-prompt must be at least 1, got -1"),
        ({"agentic_concurrency": 0}, "--agentic-concurrency must be at least 1, got 0"),
        ({"over_sampling_batch_size": 4}, r"--over-sampling-batch-size must be at least --rollout-batch-size \(8\)"),
        ({"rollout_temperature": -0.1}, r"--rollout-temperature must lie in \[0, 10\], got -0.1"),
        ({"rollout_top_p": 0.0}, r"--rollout-top-p must lie in \(0, 1\], got 0.0"),
        ({"eval_temperature": 11.0}, r"--eval-temperature must lie in \[0, 10\], got 11.0"),
        ({"eval_top_p": 1.5}, r"--eval-top-p must lie in \(0, 1\], got 1.5"),
        ({"rollout_batch_size": 10**6, "n_samples_per_prompt": 8}, "8000000 Sessions in one step; at most 1000000"),
    ],
)
def test_a_setting_out_of_range_names_its_flag(given, complaint):
    with pytest.raises(ConfigError, match=complaint):
        RolloutConfig(**given)


@pytest.mark.parametrize(
    ("given", "train", "evaluation"),
    [
        ({}, 8, 64),
        ({"over_sampling_batch_size": 12}, 12, 96),
        ({"agentic_concurrency": 3, "n_samples_per_eval_prompt": 5}, 3, 5),
        ({"agentic_eval_concurrency": 7}, 8, 7),
    ],
)
def test_capacity_follows_the_guides_table(given, train, evaluation):
    """C_d = ceil(T / G_d) with T = resident training Groups times Sessions per Group."""
    config = RolloutConfig(**given)
    assert (config.resident_groups, config.resident_eval_groups) == (train, evaluation)
