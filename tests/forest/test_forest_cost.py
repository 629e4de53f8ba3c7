"""What a Turn costs: work that follows what is new, memory that follows what was sampled."""

import gc
import sys
import tracemalloc
from collections import Counter
from itertools import count

import pytest
from forest_parts import SEARCH, assistant, generation, request, user

from relaxforge.core.turns import Observation, token_ids
from relaxforge.forest.forest import SessionForest

TURNS = 2000
TOKENS = 50
OBSERVED = token_ids(range(TOKENS))


class Growing:
    """One Session that goes on and on. Messages that were seen before are the same objects, as the gateway hands them.

    ``echo`` makes the assistant message that the client sends back from the one that was committed.
    """

    def __init__(self, echo, length: int = 20) -> None:
        self.forest = SessionForest()
        self._echo = echo
        self._length = length
        self._number = count()
        self.history = [user("q" * length)]

    def prepare(self):
        """Everything of the next Turn that the forest does not do."""
        number = next(self._number)
        answer = assistant(f"{number:<{self._length}}", reasoning="because")
        return request(*self.history, tools=(SEARCH,)), Observation(OBSERVED[:]), generation(range(TOKENS)), answer

    def turn(self, asked, observation, sampled, answer):
        pending = self.forest.begin(asked)
        state = self.forest.commit(pending, observation, sampled, answer, "r")
        self.forest.deliver(state)

    def go_on(self, prepared):
        self.turn(*prepared)
        answer = prepared[-1]
        self.history += [self._echo(answer), user(f"{len(self.history):<{self._length}}")]


ECHOES = {
    "exact": lambda answer: answer,
    "reasoning dropped": lambda answer: assistant(answer.text),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_the_work_of_a_turn_does_not_grow_with_the_history(echo):
    """Counted in Python calls, generator steps included; what remains is copying and comparing pointers in C."""
    session = Growing(ECHOES[echo])
    work = {}
    for number in range(TURNS + 1):
        prepared = session.prepare()
        if number not in (20, TURNS):
            session.go_on(prepared)
            continue
        calls: Counter[str] = Counter()
        sys.setprofile(lambda frame, event, _, calls=calls: calls.update([frame.f_code.co_name] * (event == "call")))
        try:
            session.go_on(prepared)
        finally:
            sys.setprofile(None)
        work[number] = calls
    assert work[TURNS] == work[20]


def test_a_turn_keeps_8_bytes_per_token_and_less_than_1_kb():
    """Counted: all that the forest keeps for 2,000 Turns of one linear history, 50 tokens observed and 50 sampled each.

    That is States, arrays, weight versions, digests and every index. Not counted: the messages themselves (two of 400
    characters per Turn), which belong to the gateway's memory and to the agent.
    """
    session = Growing(ECHOES["exact"], length=400)
    prepared = [None] * TURNS
    for number in range(TURNS):
        *_, answer = prepared[number] = session.prepare()
        session.history += [answer, user(f"{number:<400}")]
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(TURNS):
            asked, observation, sampled, answer = prepared[number]
            # Arrays and spans are made here, so that they are counted as what the forest keeps.
            session.turn(asked, Observation(observation.ids[:]), generation(range(TOKENS)), answer)
        prepared.clear()
        del asked, observation, sampled, answer
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    per_turn = (kept - 8 * 2 * TOKENS * TURNS) / TURNS
    print(f"{per_turn:.0f} bytes per Turn beyond 8 bytes per token")
    assert per_turn < 1024
