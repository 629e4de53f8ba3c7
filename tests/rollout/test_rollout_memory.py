"""What a long Session holds in memory beside its tokens."""

import gc
import json
import tracemalloc

from rollout_parts import VOCABULARY, new_session, run, says

from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.gateway.chat import Chat

TURNS = 300
CHARACTERS = 160
"""Of each message; together about 100,000 tokens of the tiny tokenizer."""


def text(kind, turn):
    return f"{kind} {turn} ".ljust(CHARACTERS, ".")


async def converse(session):
    """An agent that sends its whole history each time, as agents do."""
    dialect, history = Chat("m"), []
    for turn in range(TURNS):
        history.append({"role": "user", "content": text("question", turn)})
        request = dialect.read(json.dumps({"messages": history}).encode(), {}, session)
        answer = await session.turn(request)
        session.delivered(answer.request_id, complete=True)
        history.append(json.loads(dialect.write(request, answer))["choices"][0]["message"])


def test_a_long_session_keeps_less_than_2_kb_per_turn_beside_tokens_and_text(renderer):
    script = says(*(text("answer", turn) for turn in range(TURNS)))
    engine = ScriptedEngine((script,), renderer.tokenizer, renderer.stop_token_ids[0], vocab_size=VOCABULARY)
    session = new_session(renderer, engine, response=CHARACTERS * 2)
    gc.collect()
    tracemalloc.start(1)
    try:
        run(converse(session))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    states = session.forest.states
    arrays = sum(4 * (len(state.tokens) + len(state.logprobs)) for state in states)
    characters = sum(len(message.text) for state in states for message in state.messages)
    tokens = sum(len(state.tokens) for state in states)
    assert len(session.records) == TURNS
    assert tokens > 90_000
    per_turn = (held - arrays - characters) / TURNS
    print(f"{per_turn:.0f} bytes per Turn beside {tokens} tokens")
    assert per_turn < 2048
