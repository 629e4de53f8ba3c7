"""A whole Session under any interleaving of requests, retries, lost answers, pauses and its end."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_parts import HeardEngine, chat, new_session, run, says, user

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message
from relaxforge.forest.integrity import check_integrity
from relaxforge.forest.lineage import account, sample
from relaxforge.forest.select import Context

REPLIES = ("yes", "no", "", "yes", "<think>\nhm\n</think>\n\nyes")
moves = st.one_of(
    st.tuples(st.just("open"), st.sampled_from("qr")),
    st.tuples(st.just("continue"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("repeat"), st.integers(0, 5), st.booleans()),
    st.tuples(st.sampled_from(["pause", "resume", "settle", "lease"])),
)


class Agent:
    """Sends requests without waiting, reads or loses every answer as drawn."""

    def __init__(self, renderer, data):
        self.engine = HeardEngine(renderer, says(*REPLIES, cycle=True))
        self.session = new_session(renderer, self.engine, leased=False, response=8)
        self.histories: list[tuple[Message, ...]] = []
        self.sent = []
        self.asking: set[asyncio.Task] = set()
        self._data = data

    def send(self, request):
        self.sent.append(request)
        task = asyncio.create_task(self._ask(request, read=self._data.draw(st.booleans())))
        self.asking.add(task)
        task.add_done_callback(self.asking.discard)

    async def _ask(self, request, read):
        try:
            turn = await self.session.turn(request)
        except RequestError:
            return
        self.session.delivered(turn.request_id, read)
        if read:
            self.histories.append((*request.messages, turn.message))

    def pick(self, things, number):
        return things[number % len(things)] if things else None

    async def move(self, move):
        match move:
            case ("open", text):
                self.send(chat(user(text)))
            case ("continue", number, drop):
                if history := self.pick(self.histories, number):
                    *past, answer = history
                    echo = Message("assistant", answer.content) if drop else answer
                    self.send(chat(*past, echo, user(f"go on {len(self.sent)}")))
            case ("repeat", number, marked):
                if request := self.pick(self.sent, number):
                    self.send(chat(*request.messages, retry=int(marked)))
            case ("pause",):
                await self.engine.pause()
            case ("resume",):
                await self.engine.resume()
            case ("lease",):
                self.session.open_gate()
            case ("settle",):
                for _ in range(10):
                    await asyncio.sleep(0)


@settings(max_examples=150, deadline=None)
@given(moves=st.lists(moves, max_size=25), data=st.data())
def test_no_token_is_lost_and_every_lineage_is_what_the_engine_saw(renderer, moves, data):
    async def main():
        agent = Agent(renderer, data)
        for move in [("open", "q"), *moves]:
            await agent.move(move)
        await agent.session.seal()
        await asyncio.gather(*agent.asking)
        check(agent.session, agent.engine)

    run(main())


def check(session, engine):
    forest = session.forest
    check_integrity(forest)
    by_request = {state.request_id: state for state in forest.responses}
    kept = {name: generation for name, generation in engine.sampled.items() if generation.ids}
    assert by_request.keys() == kept.keys()
    for request in engine.asked:
        if state := by_request.get(request.request_id):
            assert state.lineage_ids() == request.prompt_ids + kept[request.request_id].ids
            assert state.logprobs == kept[request.request_id].logprobs
            row = sample(Context(None, state))
            assert (sum(row.loss_mask), row.turns) == (
                sum(len(step.tokens) for step in state.lineage() if step.is_response),
                sum(step.is_response for step in state.lineage()),
            )
    total = sum(len(generation.ids) for generation in kept.values())
    for reason in (None, "session_failed"):
        tokens = account(forest, [Context(None, state) for state in list(by_request.values())[:2]], reason)
        assert (tokens.sampled, tokens.balanced) == (total, True)
    assert all(record.http_status is not None for record in session.records)
    assert sum(attempt["tokens"] for record in session.records for attempt in record.attempts) == total
