"""What clients do to a Session beside asking: go away, count, forbid tool calls, show images."""

import asyncio

import pytest
from rollout_parts import SEARCH, HeardEngine, ask, chat, new_session, run, says, until, user

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import ImagePart, Message
from relaxforge.core.turns import FinishReason
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account
from relaxforge.forest.select import implicit_context

SLOW = says("a b c d e f g h i j", tokens_per_s=50)


async def start(session, engine, request):
    """A request of which at least one token is sampled."""
    engine.first_token.clear()
    asking = asyncio.create_task(session.turn(request))
    await engine.first_token.wait()
    return asking


def test_a_lost_client_ends_its_generation_and_what_was_sampled_is_kept(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine)
        request = chat(user("q"))
        asking = await start(session, engine, request)
        await session.lost(request)
        turn = await asking
        session.delivered(turn.request_id, False)
        [state] = session.forest.responses
        assert state.finish is FinishReason.ABORT
        assert 0 < len(state.tokens) == len(engine.sampled[turn.request_id].ids)
        assert account(session.forest, [], None).undelivered == len(state.tokens)
        check_integrity(session.forest)

    run(main())


def test_a_retry_after_that_samples_anew_and_the_history_stays_linear(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine)
        request = chat(user("q"))
        asking = await start(session, engine, request)
        await session.lost(request)
        session.delivered((await asking).request_id, False)
        again = await ask(session, user("q"), retry=1)
        assert not again.replayed
        assert len(engine.asked) == 2
        assert implicit_context(session.forest, "linear").state is session.records[1].state

    run(main())


def test_a_retry_that_is_waiting_keeps_the_generation_alive(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine)
        first, second = chat(user("q")), chat(user("q"), retry=1)
        asking = await start(session, engine, first)
        retrying = asyncio.create_task(session.turn(second))
        await until(lambda: len(session.records) == 2)
        await session.lost(first)
        assert (await retrying).message.text == (await asking).message.text == "a b c d e f g h i j"
        assert len(engine.asked) == 1

    run(main())


def test_an_equal_request_after_its_client_hung_up_is_its_retry_without_any_mark(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine)
        first, second = chat(user("q")), chat(user("q"))
        asking = await start(session, engine, first)
        session.left(first)
        retrying = asyncio.create_task(session.turn(second))
        await until(lambda: len(session.records) == 2)
        await session.lost(first)
        turn = await retrying
        assert turn.message.text == (await asking).message.text == "a b c d e f g h i j"
        session.delivered(turn.request_id, True)
        assert session.records[1].retry_of == session.records[0].request_id
        assert len(engine.asked) == 1
        await ask(session, user("q"))
        assert len(engine.asked) == 2, "once the answer was read, an equal request is another sample"

    run(main())


def test_the_last_of_several_lost_clients_ends_it(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine)
        first, second = chat(user("q")), chat(user("q"), retry=1)
        asking = [await start(session, engine, first), asyncio.create_task(session.turn(second))]
        await until(lambda: len(session.records) == 2)
        for request in (first, second):
            await session.lost(request)
        await asyncio.gather(*asking)
        assert next(session.forest.responses).finish is FinishReason.ABORT

    run(main())


def test_a_held_request_whose_client_is_lost_is_never_sampled(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        session = new_session(renderer, engine, leased=False)
        request = chat(user("q"))
        asking = asyncio.create_task(session.turn(request))
        await session.first_request.wait()
        await asyncio.sleep(0)
        await session.lost(request)
        session.open_gate()
        with pytest.raises(RequestError) as caught:
            await asking
        assert caught.value.status == session.records[0].http_status == 499
        assert (engine.asked, session.fault, session.forest.states) == ([], None, [])

    run(main())


def test_a_client_lost_before_the_first_token_is_nobodys_fault(renderer):
    async def main():
        engine = HeardEngine(renderer, SLOW)
        await engine.pause()
        session = new_session(renderer, engine)
        request = chat(user("q"))
        asking = asyncio.create_task(session.turn(request))
        await engine.busy.wait()
        await session.lost(request)
        with pytest.raises(RequestError) as caught:
            await asking
        assert (caught.value.status, caught.value.code) == (499, "client_closed")
        assert (session.fault, session.forest.states) == (None, [])

    run(main())


def test_losing_a_client_that_was_answered_changes_nothing(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a")))
        request = chat(user("q"))
        turn = await session.turn(request)
        await session.lost(request)
        session.delivered(turn.request_id, False)
        assert (await ask(session, user("q"))).replayed

    run(main())


def test_a_count_is_what_the_next_request_uses_and_leaves_no_trace(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("one", "two")))
        history = [user("q")]
        for _ in range(2):
            for request in (chat(*history), chat(*history, tools=(SEARCH,))):
                states, records = len(session.forest.states), len(session.records)
                counted = await session.count(request)
                assert (len(session.forest.states), len(session.records)) == (states, records)
                turn = await session.turn(request)
                assert counted == turn.usage.prompt_tokens
            history += [turn.message, user("r")]
        assert not session.first_request.is_set() or session.records

    run(main())


def test_tools_are_shown_but_not_called_when_the_client_wants_none(renderer):
    called = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'

    async def main():
        engine = HeardEngine(renderer, says(called, called))
        session = new_session(renderer, engine)
        free = await ask(session, user("q"), tools=(SEARCH,))
        bound = await ask(session, user("q"), tools=(SEARCH,), may_call=False)
        assert (free.finish, [call.name for call in free.message.tool_calls]) == ("tool_calls", ["search"])
        assert (bound.finish, bound.message) == ("stop", Message("assistant", called))
        assert engine.asked[0].prompt_ids == engine.asked[1].prompt_ids

    run(main())


def test_an_image_is_refused_by_its_path_in_the_request(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a")))
        picture = Message("user", (ImagePart("http://x/y.png", "00", "messages[0].content[1].source.url"),))
        for refuse in (lambda: ask(session, picture), lambda: session.count(chat(picture))):
            with pytest.raises(RequestError) as caught:
                await refuse()
            assert (caught.value.status, caught.value.code) == (400, "image_unsupported")
            assert caught.value.param == "messages[0].content[1].source.url"
            assert "messages[0].content[1].source.url" in str(caught.value)
        assert session.forest.states == []

    run(main())


def test_text_is_told_while_it_is_sampled_and_what_is_recorded_stays_the_same(renderer):
    async def main():
        engine = HeardEngine(renderer, says("<think>hm</think>I say " + "so " * 20, tokens_per_s=2000))
        session, quiet = (new_session(renderer, engine, session_id=f"train-g000000-0{n}") for n in range(2))
        pieces = []
        turn = await session.turn(chat(user("q")), pieces.append)
        again = await session.turn(chat(user("q"), retry=1), pieces.append)
        silent = await quiet.turn(chat(user("q")))
        assert turn.message == again.message == silent.message
        assert len(pieces) > 3
        assert "".join(piece.text for piece in pieces) == turn.message.text.rstrip()
        assert {(piece.request_id, piece.reasoning, piece.prompt_tokens) for piece in pieces} == {
            (turn.request_id, "hm", turn.usage.prompt_tokens)
        }
        first, second = (next(one.forest.responses) for one in (session, quiet))
        assert first.tokens == second.tokens

    run(main())
