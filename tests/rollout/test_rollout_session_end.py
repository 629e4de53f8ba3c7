"""What goes wrong with a request, and how a Session ends."""

import asyncio
import re
from dataclasses import replace

import pytest
from rollout_parts import HeardEngine, ask, chat, new_session, refusal, run, sampled_ids, says, user

from relaxforge.core.errors import EngineError, RequestError
from relaxforge.core.messages import ImagePart, Message
from relaxforge.core.sessions import FailureCategory
from relaxforge.core.turns import FinishReason, VersionSpan
from relaxforge.engine.scripted.rules import Rule
from relaxforge.forest.lineage import account
from relaxforge.rollout.registry import SessionRegistry

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


def test_a_provider_error_that_was_got_over_stays_in_its_record_only(renderer):
    async def main():
        engine = HeardEngine(renderer, Rule("1", match=re.compile("bad"), error="out of memory"), says("a", "b"))
        session = new_session(renderer, engine)
        await refusal(session, user("bad"))
        assert session.fault is not None
        await ask(session, user("q"))
        assert session.fault is None
        assert [record.http_status for record in session.records] == [500, 200]
        assert "out of memory" in session.records[0].error
        await refusal(session, user("bad"))
        assert session.fault.category is FailureCategory.PROVIDER_ERROR

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
        assert (refused.status, refused.code, refused.param) == (400, "image_unsupported", "messages")
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
        assert 0 < len(state.tokens) < len(sampled_ids(renderer, "a long answer")[0])
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
