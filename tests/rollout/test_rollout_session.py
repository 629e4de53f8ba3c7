"""A model request from the gateway's door to the forest and back."""

import asyncio

import pytest
from rollout_parts import SEARCH, HeardEngine, ask, chat, new_session, refusal, run, sampled_ids, says, user

from relaxforge.core.messages import Message
from relaxforge.core.turns import WeightUpdate
from relaxforge.forest.integrity import check_integrity

# The path of a Turn


def test_the_engine_gets_the_lineage_and_the_forest_keeps_what_it_sampled(renderer):
    async def main():
        engine = HeardEngine(renderer, says("first", "second"))
        session = new_session(renderer, engine)
        first = await ask(session, user("q"))
        second = await ask(session, user("q"), first.message, user("r"))
        sampled = sampled_ids(renderer, "first", "second")
        states = list(session.forest.responses)
        assert [state.tokens for state in states] == sampled
        assert states[1].lineage_ids() == engine.asked[1].prompt_ids + sampled[1]
        assert engine.asked[1].prompt_ids[: engine.asked[1].delta_start] == states[0].lineage_ids()
        assert (second.message.text, second.finish, second.replayed) == ("second", "stop", False)
        assert (second.usage.prompt_tokens, second.usage.completion_tokens) == (
            len(engine.asked[1].prompt_ids),
            len(sampled[1]),
        )
        assert [record.http_status for record in session.records] == [200, 200]
        assert session.records[1].new_messages == 1
        check_integrity(session.forest)

    run(main())


def test_a_request_is_held_until_the_groups_lease(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        session = new_session(renderer, engine, leased=False)
        held = asyncio.create_task(ask(session, user("q")))
        await session.first_request.wait()
        await asyncio.sleep(0)
        assert (held.done(), engine.asked, session.clock.spent_s) == (False, [], 0)
        session.open_gate()
        assert (await held).message.text == "a"
        assert session.records[0].timing["held_s"] > 0
        assert session.clock.spent_s > 0

    run(main())


def test_a_client_that_goes_away_does_not_take_its_tokens_along(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        await engine.pause()
        session = new_session(renderer, engine)
        request = asyncio.create_task(session.turn(chat(user("q"))))
        await engine.busy.wait()
        request.cancel()
        await asyncio.wait([request])
        await engine.resume()
        again = await ask(session, user("q"), retry=1)
        assert again.replayed
        assert (len(engine.asked), session.forest.sampled_tokens) == (1, len(sampled_ids(renderer, "a")[0]))

    run(main())


def test_a_request_may_ask_for_fewer_tokens_but_not_for_more(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a long answer, cut somewhere"))
        session = new_session(renderer, engine, response=5)
        short = await ask(session, user("q"), max_tokens=3)
        long = await ask(session, user("r"), max_tokens=50)
        assert [request.sampling.max_tokens for request in engine.asked] == [3, 5]
        assert (short.finish, long.finish, long.usage.completion_tokens) == ("length", "length", 5)

    run(main())


def test_a_cut_answer_goes_on_with_its_missing_end_masked(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a long answer", "b"))
        session = new_session(renderer, engine)
        first = await ask(session, user("q"), max_tokens=2)
        await ask(session, user("q"), first.message, user("r"))
        cut, whole = session.forest.responses
        assert cut.tokens == sampled_ids(renderer, "a long answer")[0][:2]
        assert session.records[1].normalised["end_of_turn_added"] == 1
        assert whole.parent.tokens[0] == renderer.stop_token_ids[0]
        assert whole.lineage_ids()[: cut.length] == cut.lineage_ids()

    run(main())


@pytest.mark.parametrize(("room", "finish"), [(0, "stop"), (-1, "length")])
def test_a_context_may_be_filled_to_its_last_token(renderer, room, finish):
    async def main():
        reply = sampled_ids(renderer, "a long answer")[0]
        open_ended = HeardEngine(renderer, says("a long answer"))
        await ask(new_session(renderer, open_ended), user("q"))
        prompt = len(open_ended.asked[0].prompt_ids)
        session = new_session(
            renderer, HeardEngine(renderer, says("a long answer")), context=prompt + len(reply) + room
        )
        turn = await ask(session, user("q"))
        assert (turn.finish, turn.usage.prompt_tokens + turn.usage.completion_tokens) == (
            finish,
            prompt + len(reply) + room,
        )
        refused = await refusal(session, user("q"), turn.message, user("r"))
        assert (refused.status, refused.code, refused.param) == (400, "context_length_exceeded", "messages")

    run(main())


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers_and_leaves_no_trace(renderer):
    async def main():
        open_ended = HeardEngine(renderer, says("a"))
        await ask(new_session(renderer, open_ended), user("q"))
        prompt = len(open_ended.asked[0].prompt_ids)
        engine = HeardEngine(renderer, says("a"))
        session = new_session(renderer, engine, context=prompt)
        refused = await refusal(session, user("q"))
        assert f"has {prompt} tokens and the context limit is {prompt}" in str(refused)
        assert "--rollout-max-context-len" in str(refused)
        assert (engine.asked, session.forest.states) == ([], [])
        assert (session.records[0].http_status, session.records[0].error) == (400, str(refused))

    run(main())


# Any answer is an answer


def test_an_empty_answer_commits_its_end_token(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("", "b")))
        first = await ask(session, user("q"))
        assert (first.message, first.finish, first.usage.completion_tokens) == (Message("assistant", ""), "stop", 1)
        second = await ask(session, user("q"), first.message, user("go on"))
        assert [len(state.conversation()) for state in session.forest.responses] == [2, 4]
        assert second.message.text == "b"

    run(main())


def test_a_tool_call_and_its_result_are_one_history(renderer):
    async def main():
        call = '<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call>'
        session = new_session(renderer, HeardEngine(renderer, says(call, "done")))
        first = await ask(session, user("q"), tools=(SEARCH,))
        assert (first.finish, first.message.tool_calls[0].name) == ("tool_calls", "search")
        result = Message("tool", "found", tool_call_id=first.message.tool_calls[0].id)
        await ask(session, user("q"), first.message, result, tools=(SEARCH,))
        last = list(session.forest.responses)[-1]
        assert (len(last.lineage()), session.records[1].drift, session.records[1].new_messages) == (4, (), 1)

    run(main())


def test_a_malformed_tool_call_is_text_and_is_counted(renderer):
    async def main():
        broken = '<tool_call>\n{"name": "search", "argum'
        session = new_session(renderer, HeardEngine(renderer, says(broken)))
        turn = await ask(session, user("q"), tools=(SEARCH,))
        assert (turn.finish, turn.message.text, turn.message.tool_calls) == ("stop", broken, ())
        assert [name for name in session.records[0].normalised if name.startswith("malformed_")]
        assert session.forest.sampled_tokens == len(sampled_ids(renderer, broken)[0])

    run(main())


def test_a_stop_string_ends_the_answer_and_its_tokens_stay_sampled(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("one STOP two")))
        turn = await ask(session, user("q"), stop=("STOP",))
        (state,) = session.forest.responses
        assert (turn.finish, turn.stop_match, turn.message.text.strip()) == ("stop", "STOP", "one")
        assert renderer.tokenizer.decode(state.tokens).startswith("one STOP")

    run(main())


def test_logprobs_are_those_of_the_sampled_tokens_and_spell_the_answer(renderer):
    async def main():
        engine = HeardEngine(renderer, says("héllo"))
        session = new_session(renderer, engine)
        asked = await ask(session, user("q"), logprobs=True)
        plain = await ask(session, user("r"))
        generation = engine.sampled[asked.request_id]
        assert [entry.logprob for entry in asked.logprobs] == generation.logprobs.tolist()
        assert b"".join(entry.raw for entry in asked.logprobs).decode() == "héllo<|im_end|>"
        assert plain.logprobs is None

    run(main())


def test_tokens_of_two_weight_versions_in_one_answer_are_told_apart(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a long answer", tokens_per_s=200))
        session = new_session(renderer, engine)
        asking = asyncio.create_task(ask(session, user("q")))
        await engine.first_token.wait()
        await engine.load(WeightUpdate(3, "unused"))
        await asking
        (state,) = session.forest.responses
        old, new = state.versions
        assert (old.version, old.start, new.version, new.start, new.end) == (0, 0, 3, old.end, len(state.tokens))
        assert session.records[0].attempts == [
            {"weight_version": 0, "tokens": old.end, "aborted": False},
            {"weight_version": 3, "tokens": new.end - new.start, "aborted": False},
        ]

    run(main())


# Seeds


def test_every_request_of_a_session_has_a_seed_of_its_own_and_keeps_it_in_another_incarnation(renderer):
    async def seeds(session_id, seed=7):
        engine = HeardEngine(renderer, says("a"), seeded=True)
        session = new_session(renderer, engine, session_id=session_id, seed=seed)
        for text in "qr":
            await ask(session, user(text))
        return [request.sampling.seed for request in engine.asked]

    first = run(seeds("train-g000000-00"))
    assert len(set(first)) == 2
    assert run(seeds("train-g000000-00-i1")) == first
    assert run(seeds("train-g000000-00", seed=8)) != first


def test_a_seed_in_the_request_wins_and_an_engine_without_seeds_gets_none(renderer):
    async def main(seeded):
        engine = HeardEngine(renderer, says("a"), seeded=seeded)
        await ask(new_session(renderer, engine), user("q"), seed=0)
        return engine.asked[0].sampling.seed

    assert run(main(seeded=True)) == 0
    assert run(main(seeded=False)) is None
