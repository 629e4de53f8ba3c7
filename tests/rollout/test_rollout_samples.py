"""A Group as training input: what its Sessions share lives once, what was sampled never merges."""

import pytest
from rollout_parts import HeardEngine, ask, new_session, run, says, user

from relaxforge.core.samples import flatten
from relaxforge.core.turns import FinishReason
from relaxforge.forest.lineage import sample
from relaxforge.forest.select import Context, implicit_context
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.samples import sample_group


async def talk(renderer, index, replies, *, advantage=0.0, reward=0.0, max_tokens=None):
    """A Session of the Group that asks once per reply, as an outcome with its one Context."""
    session = new_session(renderer, HeardEngine(renderer, says(*replies)), session_id=f"train-g000000-{index:02d}")
    history = [user("q")]
    for number in range(len(replies)):
        turn = await ask(session, *history, max_tokens=max_tokens)
        history += [turn.message, user(f"go on {number}")]
    context = implicit_context(session.forest, "linear")
    return Outcome(session, contexts=(context,), reward=reward, advantage=advantage)


def group_of(*outcomes):
    return sample_group("train-g000000", outcomes)


def assert_rows_match(group, outcomes):
    """Every path, flattened, is the row that the forest makes of the same Context."""
    contexts = [(outcome, context) for outcome in outcomes for context in outcome.contexts]
    assert len(group.contexts) == len(contexts)
    for path, (outcome, context) in zip(group.contexts, contexts, strict=True):
        row = sample(context)
        assert flatten(group, path) == (row.tokens, row.prompt_length, row.loss_mask, row.logprobs)
        assert (path.session_id, path.name) == (outcome.session.session_id, context.name)
        spans = [span for index in path.path for span in group.segments[index].versions]
        assert len(spans) == len(row.versions)


def test_a_groups_prompt_is_one_segment_and_its_answers_are_not(renderer):
    async def main():
        outcomes = [await talk(renderer, index, ["same", "same"]) for index in range(3)]
        group = group_of(*outcomes)
        assert_rows_match(group, outcomes)
        first = [path.path[0] for path in group.contexts]
        assert first == [first[0]] * 3
        answers = [index for path in group.contexts for index in path.path if group.segments[index].sampled]
        assert len(set(answers)) == len(answers) == 6
        # Equal observations behind different answers are different places in the tree.
        assert len(group.segments) == 1 + 3 * 3

    run(main())


def test_contexts_of_one_session_share_their_common_lineage(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a", "left", "right")))
        first = await ask(session, user("q"))
        for branch in ("l", "r"):
            await ask(session, user("q"), first.message, user(branch))
        _, left, right = session.forest.responses
        outcome = Outcome(session, contexts=(Context("left", left), Context("right", right)), advantage=0.5, reward=1.0)
        group = group_of(outcome)
        assert_rows_match(group, [outcome])
        paths = [path.path for path in group.contexts]
        assert paths[0][:2] == paths[1][:2]
        assert not set(paths[0][2:]) & set(paths[1][2:])
        assert len(group.segments) == 6
        assert {(path.advantage, path.reward) for path in group.contexts} == {(0.5, 1.0)}

    run(main())


def test_sessions_that_ask_differently_share_nothing(renderer):
    async def main():
        one = await talk(renderer, 0, ["a"])
        session = new_session(renderer, HeardEngine(renderer, says("a")), session_id="train-g000000-01")
        await ask(session, user("something else"))
        two = Outcome(session, contexts=(implicit_context(session.forest, "linear"),))
        group = group_of(one, two)
        assert_rows_match(group, [one, two])
        assert len(group.segments) == 4

    run(main())


@pytest.mark.parametrize(("max_tokens", "truncated"), [(None, False), (1, True)])
def test_a_context_knows_whether_it_was_cut(renderer, max_tokens, truncated):
    async def main():
        outcome = await talk(renderer, 0, ["a long answer"], max_tokens=max_tokens)
        (path,) = group_of(outcome).contexts
        assert path.truncated is truncated
        assert outcome.contexts[0].state.finish is (FinishReason.LENGTH if truncated else FinishReason.STOP)

    run(main())
