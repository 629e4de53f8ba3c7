"""A request that the gateway refuses leaves the Session as it was: its dump differs by the record of that alone."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollout_parts import HeardEngine, new_session, run, says

from relaxforge.core.errors import RequestError
from relaxforge.gateway.chat import Chat
from relaxforge.gateway.messages import Messages
from relaxforge.gateway.responses import Responses
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line

USER = {"role": "user", "content": "q"}
DIALECTS = {
    "chat": (Chat("m"), {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f"}}]}),
    "responses": (Responses("m"), {"input": [USER], "tools": [{"type": "function", "name": "f"}]}),
    "messages": (Messages("m"), {"messages": [USER], "max_tokens": 9, "tools": [{"name": "f"}]}),
}
JUNK = [3, -1, True, [], {}, "", [3], {"a": 1}, [[]], "x" * 5]


def dump(session):
    """The dump line as it would be written now, and what the gateway remembers about the Session."""
    line = dump_line(Outcome(session), run_id="r", incarnation=0, rollout_id=0)
    return line, dict(session.known), dict(session.known_tools), set(session.known_fields)


@st.composite
def damaged(draw, body):
    """``body`` with one value replaced by something of another kind, and unknown fields and messages beside it."""
    name = "input" if "input" in body else "messages"
    more = draw(st.lists(st.sampled_from([USER, {"role": "system", "content": "s"}]), max_size=2))
    copy = json.loads(json.dumps({**body, name: body[name] + more, "temperature": 1}))
    at, key = copy, draw(st.sampled_from(sorted(copy)))
    while isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
        at = at[key]
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
    at[key] = draw(st.sampled_from(JUNK))
    return copy


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("api", DIALECTS)
@given(data=st.data())
def test_a_refused_request_changes_nothing(renderer, api, data):
    dialect, body = DIALECTS[api]
    sent = data.draw(damaged(body))

    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a", "b")))
        request = dialect.read(json.dumps(body).encode(), {}, session)
        session.delivered((await session.turn(request)).request_id, True)
        before = dump(session)
        if (error := refusal(dialect, json.dumps(sent).encode(), session)) is None:
            return
        session.refused(api, error)
        line, *memory = dump(session)
        record = line["requests"].pop()
        assert (line, *memory) == before
        assert (record["api"], record["http_status"], record["error"]) == (api, 400, str(error))

    run(main())


def refusal(dialect, body, session):
    try:
        dialect.read(body, {}, session)
    except RequestError as error:
        return error
    return None
