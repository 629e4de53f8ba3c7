"""Long texts are tokenised in a thread: nobody waits for them but their own Session, whose order stays."""

import asyncio
import copy
import threading

import pytest
from rollout_parts import PATIENCE_S, HeardEngine, ask, chat, new_session, run, says, until, user

from relaxforge.core.errors import RequestError

LONG = "a long text " * 1000


class Held:
    """A renderer that begins a conversation with a long text only when it is told to go on."""

    def __init__(self, renderer):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.renderer, self._open = copy.copy(renderer), renderer.open
        self.renderer.open = self.open

    def open(self, request, most=None):
        if request.messages[0].text == LONG:
            self.begun.set()
            assert self.go_on.wait(PATIENCE_S), "nobody else could work meanwhile"
        return self._open(request, most)


@pytest.fixture
def held(renderer):
    return Held(renderer)


def test_other_sessions_are_answered_while_a_long_text_is_tokenised(held):
    async def main():
        engine = HeardEngine(held.renderer, says("a", cycle=True))
        long, short = (new_session(held.renderer, engine, session_id=f"train-g000000-0{n}") for n in range(2))
        asking = asyncio.create_task(ask(long, user(LONG)))
        await until(held.begun.is_set)
        await ask(short, user("q"))
        assert not asking.done()
        held.go_on.set()
        assert (await asking).message.text == "a"

    run(main())


def test_a_long_text_gives_the_tokens_that_a_whole_render_gives(renderer):
    async def main():
        engine = HeardEngine(renderer, says("a", cycle=True))
        session = new_session(renderer, engine)
        request = chat(user(LONG))
        assert await session.count(request) == len(renderer.open(request).ids)
        first = await ask(session, user(LONG))
        await ask(session, user(LONG), first.message, user(LONG))
        assert engine.asked[0].prompt_ids == renderer.open(request).ids
        assert engine.asked[1].prompt_ids == renderer.open(chat(user(LONG), first.message, user(LONG))).ids

    run(main())


def test_no_request_overtakes_a_longer_one_of_its_session(held):
    async def main():
        engine = HeardEngine(held.renderer, says("a", "b"))
        session = new_session(held.renderer, engine)
        long = asyncio.create_task(ask(session, user(LONG)))
        await until(held.begun.is_set)
        short = asyncio.create_task(ask(session, user("q")))
        await until(lambda: len(session.records) == 2)
        held.go_on.set()
        assert [(await long).message.text, (await short).message.text] == ["a", "b"]
        assert [request.request_id for request in engine.asked] == [record.request_id for record in session.records]

    run(main())


@pytest.mark.parametrize("end", ["session", "client"])
def test_what_ends_while_its_text_is_tokenised_is_never_sampled(held, end):
    async def main():
        engine = HeardEngine(held.renderer, says("a"))
        session = new_session(held.renderer, engine)
        request = chat(user(LONG))
        asking = asyncio.create_task(session.turn(request))
        await until(held.begun.is_set)
        ending = asyncio.create_task(session.seal() if end == "session" else session.lost(request))
        await asyncio.sleep(0)
        held.go_on.set()
        await ending
        with pytest.raises(RequestError) as refused:
            await asking
        assert refused.value.code == ("session_discarded" if end == "session" else "client_closed")
        assert engine.asked == []

    run(main())
