"""A model request from the gateway's door to the forest and back."""

import asyncio
import re
from dataclasses import replace

import pytest
from rollout_parts import SEARCH, HeardEngine, ask, chat, new_session, run, says, user

from relaxforge.core.errors import EngineError, RequestError
from relaxforge.core.messages import ImagePart, Message
from relaxforge.core.sessions import FailureCategory
from relaxforge.core.turns import FinishReason, VersionSpan, WeightUpdate, token_ids
from relaxforge.engine.scripted.rules import Rule
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account
from relaxforge.rollout.registry import SessionRegistry


def texts(renderer, *replies):
    """The ids that the engine samples for each reply, end of turn included."""
    return [token_ids([*renderer.tokenizer.encode(reply), renderer.stop_token_ids[0]]) for reply in replies]


# The path of a Turn


def test_the_engine_gets_the_lineage_and_the_forest_keeps_what_it_sampled(renderer):
    async def main():
        engine = HeardEngine(renderer, says("first", "second"))
        session = new_session(renderer, engine)
        first = await ask(session, user("q"))
        second = await ask(session, user("q"), first.message, user("r"))
        sampled = texts(renderer, "first", "second")
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
        assert (len(engine.asked), session.forest.sampled_tokens) == (1, len(texts(renderer, "a")[0]))

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
        assert cut.tokens == texts(renderer, "a long answer")[0][:2]
        assert session.records[1].normalised["end_of_turn_added"] == 1
        assert whole.parent.tokens[0] == renderer.stop_token_ids[0]
        assert whole.lineage_ids()[: cut.length] == cut.lineage_ids()

    run(main())


@pytest.mark.parametrize(("room", "finish"), [(0, "stop"), (-1, "length")])
def test_a_context_may_be_filled_to_its_last_token(renderer, room, finish):
    async def main():
        reply = texts(renderer, "a long answer")[0]
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


async def refusal(session, *messages, **rest):
    with pytest.raises(RequestError) as caught:
        await session.turn(chat(*messages, **rest))
    return caught.value


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
        assert session.forest.sampled_tokens == len(texts(renderer, broken)[0])

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


# Retries and repeated sampling


def test_a_lost_answer_is_replayed_and_a_read_one_is_not(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b"))
        session = new_session(renderer, engine)
        lost = await ask(session, user("q"), read=False)
        again = await ask(session, user("q"))
        assert (again.message, again.replayed, again.request_id != lost.request_id) == (lost.message, True, True)
        assert (session.records[1].retry_of, session.records[1].http_status) == (lost.request_id, 200)
        assert session.records[1].state is session.records[0].state
        fresh = await ask(session, user("q"))
        assert (fresh.message.text, fresh.replayed) == ("b", False)
        assert [record.delivered for record in session.records] == [False, True, True]
        assert account(session.forest, [], None).undelivered == 0

    run(main())


def test_a_marked_retry_attaches_to_the_generation_in_flight(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b"))
        await engine.pause()
        session = new_session(renderer, engine)
        first = asyncio.create_task(ask(session, user("q")))
        await engine.busy.wait()
        second = asyncio.create_task(ask(session, user("q"), retry=1))
        await asyncio.sleep(0)
        await engine.resume()
        one, two = await asyncio.gather(first, second)
        assert (one.message, len(engine.asked)) == (two.message, 1)
        assert len(list(session.forest.responses)) == 1

    run(main())


def test_a_retry_that_is_given_up_takes_nothing_from_the_request_it_attached_to(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        await engine.pause()
        session = new_session(renderer, engine)
        first = asyncio.create_task(ask(session, user("q")))
        await engine.busy.wait()
        second = asyncio.create_task(ask(session, user("q"), retry=1))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        await engine.resume()
        assert (await first).message.text == "a"

    run(main())


def test_repeated_sampling_in_the_middle_of_a_history_renders_nothing_anew(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b", "c"))
        session = new_session(renderer, engine)
        first = await ask(session, user("q"))
        for _ in range(2):
            await ask(session, user("q"), first.message, user("r"))
        assert engine.asked[1].prompt_ids == engine.asked[2].prompt_ids
        assert [record.new_messages for record in session.records] == [1, 1, 0]

    run(main())


def test_equal_bodies_are_repeated_sampling_and_share_one_observation(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", "b", "b", "c"))
        session = new_session(renderer, engine)
        turns = await asyncio.gather(*(ask(session, user("q")) for _ in range(4)))
        assert [turn.message.text for turn in turns] == ["a", "b", "b", "c"]
        states = list(session.forest.responses)
        assert (len(states), len({state.parent for state in states}), len(session.forest.roots)) == (4, 1, 1)

    run(main())


def test_a_failed_request_is_tried_again_not_replayed(renderer):
    async def main():
        engine = HeardEngine(renderer, Rule("down", match=None, error="out of memory"))
        session = new_session(renderer, engine)
        await refusal(session, user("q"))
        await refusal(session, user("q"), retry=1)
        assert len(engine.asked) == 2

    run(main())


# Errors


def test_a_provider_error_is_a_500_a_fault_of_ours_and_no_trace_in_the_forest(renderer):
    async def main():
        engine = HeardEngine(renderer, Rule("1", match=re.compile("q"), error="out of memory"), Rule("2", error="gone"))
        session = new_session(renderer, engine)
        refused = await refusal(session, user("q"))
        await refusal(session, user("r"))
        assert (refused.status, refused.code) == (500, "internal_error")
        assert session.fault.category is FailureCategory.PROVIDER_ERROR
        assert "out of memory" in session.fault.message
        assert (session.records[0].http_status, session.records[0].error) == (500, str(refused))
        assert (session.forest.states, session.records[0].state) == ([], None)

    run(main())


def test_an_engine_that_returns_nothing_is_a_provider_error(renderer):
    class Silent(HeardEngine):
        async def generate(self, request, emit=None):
            generation = await super().generate(request)
            return replace(generation, ids=generation.ids[:0], logprobs=generation.logprobs[:0], versions=())

    async def main():
        session = new_session(renderer, Silent(renderer, says("a")))
        refused = await refusal(session, user("q"))
        assert refused.status == 500
        assert "returned no token at all" in str(refused)
        assert session.fault.category is FailureCategory.PROVIDER_ERROR

    run(main())


def test_what_the_template_refuses_is_the_agents_mistake(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a")))
        picture = Message("user", (ImagePart("data:image/png;base64,AA==", "00"),))
        refused = await refusal(session, picture)
        assert (refused.status, refused.code, refused.param) == (400, "template_refused", "messages")
        assert (session.records[0].http_status, session.fault) == (400, None)
        assert (await ask(session, user("q"))).message.text == "a"

    run(main())


def test_a_request_refused_at_the_gateway_is_recorded_and_counts_as_the_first(renderer):
    session = new_session(renderer, HeardEngine(renderer, says("a")))
    session.refused("chat", RequestError("no such role", status=422))
    assert session.first_request.is_set()
    assert (session.records[0].http_status, session.records[0].error) == (422, "no such role")


# The end of a Session


def test_what_was_sampled_when_a_session_ends_is_kept_as_undelivered(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a long answer", tokens_per_s=100))
        session = new_session(renderer, engine)
        asking = asyncio.create_task(session.turn(chat(user("q"))))
        await engine.first_token.wait()
        await session.seal()
        (state,) = session.forest.responses
        with pytest.raises(RequestError) as caught:
            await asking
        assert (caught.value.status, caught.value.code) == (404, "session_discarded")
        assert 0 < len(state.tokens) < len(texts(renderer, "a long answer")[0])
        assert state.finish is FinishReason.ABORT
        assert state.versions == (VersionSpan(0, 0, len(state.tokens)),)
        tokens = account(session.forest, [], "session_failed")
        assert (tokens.undelivered, dict(tokens.masked)) == (len(state.tokens), {})
        assert session.records[0].attempts == [{"weight_version": 0, "tokens": len(state.tokens), "aborted": True}]
        assert session.records[0].http_status == 404

    run(main())


def test_a_session_that_ends_before_the_first_token_keeps_nothing(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", delay_s=600))
        session = new_session(renderer, engine)
        asking = asyncio.create_task(session.turn(chat(user("q"))))
        await engine.busy.wait()
        await session.seal()
        with pytest.raises(RequestError, match="has ended"):
            await asking
        assert session.forest.states == []

    run(main())


def test_a_held_request_is_let_go_when_the_session_ends_before_its_lease(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        session = new_session(renderer, engine, leased=False)
        held = asyncio.create_task(session.turn(chat(user("q"))))
        await session.first_request.wait()
        await session.seal()
        with pytest.raises(RequestError, match="has ended"):
            await held
        assert engine.asked == []

    run(main())


def test_a_sealed_session_answers_404_and_records_nothing_more(renderer):
    async def main():
        registry = SessionRegistry()
        session = new_session(renderer, HeardEngine(renderer, says("a")))
        registry.add(session)
        key = str(session.identity.credential)
        assert registry.open(key) is session
        await ask(session, user("q"))
        await session.seal()
        refused = await refusal(session, user("q"))
        assert (refused.status, refused.code, len(session.records)) == (404, "session_discarded", 1)
        registry.remove(session)
        with pytest.raises(RequestError) as caught:
            registry.open(key)
        assert caught.value.code == "session_discarded"

    run(main())


@pytest.mark.parametrize("key", ["", "nonsense", "train-g000000-00.", ".secret", "train-g000000-00.wrong", "other.key"])
def test_a_wrong_key_opens_nothing(renderer, key):
    async def main():
        registry = SessionRegistry()
        registry.add(new_session(renderer, HeardEngine(renderer, says("a"))))
        with pytest.raises(RequestError) as caught:
            registry.open(key)
        assert (caught.value.status, caught.value.code) == (404, "session_not_found")

    run(main())


def test_a_lease_that_comes_after_the_end_starts_no_clock(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a")), leased=False)
        await session.seal()
        session.open_gate()
        assert session.clock.spent_s == 0

    run(main())


def test_an_engine_that_died_does_not_keep_a_session_from_ending(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a"))
        await engine.pause()
        session = new_session(renderer, engine)
        asking = asyncio.create_task(session.turn(chat(user("q"))))
        await engine.busy.wait()
        engine_gone(engine)
        await session.seal()
        with pytest.raises(RequestError, match="has ended"):
            await asking

    run(main())


def engine_gone(engine):
    """From now on every abort fails, as it does when the process of an engine is dead; its requests end."""
    abort = engine.abort

    async def fail(request_id):
        await abort(request_id)
        raise EngineError("the engine process is gone")

    engine.abort = fail


def test_renders_are_compared_off_the_path_and_agree(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a", "b", "c")), check_every=1)
        history = [user("q")]
        for text in ("r", "s", "t"):
            turn = await ask(session, *history)
            history += [turn.message, user(text)]
        await session.seal()
        assert dict(session.notices) == {}

    run(main())
