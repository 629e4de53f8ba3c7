"""The API as clients meet it: official SDK, routes, credentials, errors."""

import httpx
import openai
import pytest
from scripted_gateway import PATIENCE_S, say
from structlog.testing import capture_logs

from relaxforge.core.errors import RequestError
from relaxforge.core.ids import Credential
from relaxforge.core.messages import Message, ToolCall
from relaxforge.core.turns import TokenLogprob, Usage

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def client(running, session):
    with openai.OpenAI(
        base_url=running.url, api_key=str(session.credential), max_retries=2, timeout=PATIENCE_S
    ) as client:
        yield client


def test_the_official_client_gets_a_complete_answer(client, session):
    session.script = lambda request: say("forty-two", finish="length", usage=Usage(11, 5, 8))
    answer = client.chat.completions.create(model="any-name", messages=[USER])
    assert answer.choices[0].message.content == "forty-two"
    assert answer.choices[0].finish_reason == "length"
    assert answer.model == "any-name"
    assert answer.id == "chatcmpl-r0"
    assert answer._request_id == "r0"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (11, 5, 16)
    assert answer.usage.prompt_tokens_details.cached_tokens == 8
    assert session.request.messages == (Message("user", "hi"),)


def test_an_answer_echoed_through_model_dump_is_the_message_that_was_given(client, session):
    given = Message("assistant", "", "let me see", (ToolCall("call_1", "add", '{"a":1,"b":[2]}'),))
    session.script = lambda request: say(message=given, finish="tool_calls")
    answer = client.chat.completions.create(model="m", messages=[USER])
    assert answer.choices[0].message.content is None
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"a":1,"b":[2]}'
    history = [USER, answer.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": "call_1", "content": "3"}]
    client.chat.completions.create(model="m", messages=history)
    assert session.request.messages[1].exact == given.exact


def test_an_empty_answer_can_be_echoed(client, session):
    session.script = lambda request: say("")
    answer = client.chat.completions.create(model="m", messages=[USER])
    assert answer.choices[0].message.content == ""
    client.chat.completions.create(model="m", messages=[USER, answer.choices[0].message.model_dump(), USER])
    assert session.request.messages[1].exact == Message("assistant").exact


def test_logprobs_are_there_when_asked_for(client, session):
    tokens = (TokenLogprob("he", -0.5, b"he"), TokenLogprob("\ufffd", -1.25, b"\xe2\x82"))
    session.script = lambda request: say("he", logprobs=tokens if request.logprobs else None)
    asked = client.chat.completions.create(model="m", messages=[USER], logprobs=True)
    shown = asked.choices[0].logprobs.content
    assert [(token.token, token.logprob, token.bytes) for token in shown] == [
        ("he", -0.5, [104, 101]),
        ("\ufffd", -1.25, [226, 130]),
    ]
    assert client.chat.completions.create(model="m", messages=[USER]).choices[0].logprobs is None


def test_a_marked_retry_reaches_the_session(client, session):
    failures = [RequestError("busy", status=503, code="busy")]

    def script(request):
        if failures:
            raise failures.pop()
        return say()

    session.script = script
    client.chat.completions.create(model="m", messages=[USER], extra_headers={"Idempotency-Key": "k1"})
    first, second = (request.retry for request in session.requests)
    assert (first.retry_count, second.retry_count) == (0, 1)
    assert first.body == second.body
    assert second.idempotency_key == "k1"


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny", "other"]


def test_the_first_model_answers_a_request_that_names_none(post):
    assert post().json()["model"] == "tiny"
    assert post(model=None).json()["model"] == "tiny"


@pytest.mark.parametrize("path", ["", "/", "/health", "/v1", "/v1/", "/v1/health/", "/health?probe=1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_liveness_needs_no_credential(http, running, path, method):
    assert http.request(method, running.url + path).status_code == 200


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions/", "/v1/chat/completions?beta=true"])
def test_the_endpoint_is_found_with_and_without_v1(http, running, session, path):
    headers = {"authorization": f"bearer {session.credential}"}
    assert http.post(running.url + path, json={"messages": [USER]}, headers=headers).status_code == 200


def test_the_credential_may_come_as_x_api_key(http, running, session):
    headers = {"x-api-key": str(session.credential)}
    answer = http.post(f"{running.url}/chat/completions", json={"messages": [USER]}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Basic abc"}, {"authorization": "Bearer"}, {"x-api-key": ""}]
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/chat/completions"), ("GET", "/models")])
def test_no_credential_is_401_before_the_body_is_looked_at(http, running, headers, method, path):
    answer = http.request(method, running.url + path, content=b"{" * 100, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "missing_credential"
    assert answer.json()["error"]["type"] == "authentication_error"


def test_a_wrong_secret_opens_nothing(http, running, session):
    headers = {"authorization": f"Bearer {Credential.issue(session.session_id)}"}
    answer = http.post(f"{running.url}/chat/completions", json={"messages": [USER]}, headers=headers)
    assert answer.status_code == 404
    assert not session.requests
    assert not session.refusals


def test_an_ended_session_tells_the_client_not_to_retry(client, session):
    session.ended = True
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="m", messages=[USER])
    assert caught.value.code == "session_discarded"
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/v2/chat/completions", "/v1/embeddings", "/chat", "/v1chat/completions", "/%00"])
def test_an_unknown_path_is_404_and_names_the_known_ones(http, running, path):
    answer = http.post(running.url + path, json={})
    assert answer.status_code == 404
    assert "/agentic_api/chat/completions" in answer.json()["error"]["message"]


def test_paths_outside_the_base_are_404(http, running):
    origin = running.url.removesuffix("/agentic_api")
    for path in ("", "/", "/health", "/agentic_apix/health", "/v1/chat/completions"):
        assert http.get(origin + path).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"), [("GET", "/chat/completions", "POST"), ("POST", "/models", "GET, HEAD")]
)
def test_a_wrong_method_is_405_and_says_which_are_right(http, running, method, path, allow):
    answer = http.request(method, running.url + path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    assert answer.json()["error"]["code"] == "wrong_method"


def test_an_error_of_the_session_keeps_its_status_code_and_param(client, session):
    def script(request):
        raise RequestError("too long", code="context_length_exceeded", param="messages")

    session.script = script
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[USER])
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert caught.value.body["message"] == "too long"
    assert not session.refusals, "the Session records its own errors"


def test_a_fault_of_ours_is_logged_and_answered_without_its_words(client, session):
    def script(request):
        raise RuntimeError("secret detail")

    session.script = script
    with capture_logs() as logs, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="m", messages=[USER])
    assert len(session.requests) == 1, "x-should-retry: false stops the client"
    assert caught.value.code == "internal_error"
    assert "secret detail" not in str(caught.value)
    [entry] = [entry for entry in logs if entry["event"] == "gateway_failed"]
    assert entry["session_id"] == session.session_id
    assert entry["exc_info"]


def test_the_guides_plain_http_works_without_any_sdk(running, session):
    url = running.url.rstrip("/") + "/v1/chat/completions"
    answer = httpx.post(url, json={"messages": [USER]}, headers={"Authorization": f"Bearer {session.credential}"})
    assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "fine"}


def test_the_admin_listener_shows_the_state_and_nothing_else(http, running):
    running.state = {"groups": {"resident": 3}}
    admin = running.gateway.admin_url
    assert http.get(f"{admin}/debug_state").json() == {"groups": {"resident": 3}}
    assert http.get(f"{admin}/").status_code == 404
    assert http.post(f"{admin}/debug_state").status_code == 405
    assert http.get(f"{running.url}/debug_state").status_code == 404
