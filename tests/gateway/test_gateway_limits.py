"""Bodies that are too large, too deep, or not JSON at all."""

import json
import socket
import tracemalloc
from urllib.parse import urlsplit

import pytest
from scripted_gateway import PATIENCE_S

MIB = 1024 * 1024


def error_of(answer):
    assert answer.status_code == 400, answer.text[:300]
    return answer.json()["error"]


def test_fifty_megabytes_are_accepted(post, session):
    content = "z" * (50 * MIB)
    assert post(messages=[{"role": "user", "content": content}]).status_code == 200
    assert session.request.messages[0].content == content


def test_a_declared_length_above_the_limit_is_refused_before_the_body_is_sent(running, session):
    where = urlsplit(running.url)
    head = (
        f"POST {where.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.credential}\r\n"
        f"content-length: {65 * MIB}\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    [error] = session.refusals
    assert "--agentic-max-body-mb" in str(error)


def test_a_streamed_body_is_refused_once_it_passes_the_limit(http, running, session):
    def pieces():
        for _ in range(70):
            yield b" " * MIB

    headers = {"authorization": f"Bearer {session.credential}"}
    answer = http.post(f"{running.url}/chat/completions", content=pieces(), headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert len(session.refusals) == 1


def test_a_streamed_body_within_the_limit_is_read(http, running, session):
    body = json.dumps({"messages": [{"role": "user", "content": "w" * 3 * MIB}]}).encode()

    def pieces():
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    headers = {"authorization": f"Bearer {session.credential}"}
    assert http.post(f"{running.url}/chat/completions", content=pieces(), headers=headers).status_code == 200
    assert len(session.request.messages[0].content) == 3 * MIB


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"messages": [1,]}', b'{"a": 01}', b"\xef\xbb\xbf{}", b"{} {}"]
)
def test_what_is_not_json_is_said_to_be_not_json(post, session, body):
    assert "JSON" in error_of(post(body))["message"]
    assert len(session.refusals) == 1


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"3"])
def test_a_body_must_be_an_object(post, body):
    assert "object" in error_of(post(body))["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "ignored": "\xc3("}',
        "{}".encode("utf-16"),
    ],
)
def test_invalid_utf_8_is_refused_wherever_it_stands(post, body):
    assert "UTF-8" in error_of(post(body))["message"]


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
@pytest.mark.parametrize("name", ["messages", "tools", "chat_template_kwargs", "ignored"])
def test_bottomless_nesting_is_refused(post, session, depth, name):
    fields = {"messages": b'[{"role":"user","content":"x"}]', name: b"[" * depth + b"]" * depth}
    body = b"{" + b",".join(b'"%s":%s' % (field.encode(), raw) for field, raw in fields.items()) + b"}"
    assert "200 levels" in error_of(post(body))["message"]
    assert not session.requests


@pytest.mark.parametrize(("levels", "status"), [(200, 200), (201, 400)])
def test_two_hundred_levels_are_the_limit(post, levels, status):
    inner = levels - 1
    raw = (
        b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":'
        + b"[" * inner
        + b"]" * inner
        + b"}}"
    )
    assert post(raw).status_code == status


def test_wide_values_are_not_mistaken_for_deep_ones(post):
    assert post(chat_template_kwargs={"a": [[] for _ in range(1000)]}).status_code == 200


@pytest.mark.parametrize("bad", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
@pytest.mark.parametrize("name", ["seed", "chat_template_kwargs"])
def test_numbers_without_a_value_are_refused(post, name, bad):
    value = bad if name == "seed" else b'{"x":[%s]}' % bad
    error_of(post(b'{"messages":[{"role":"user","content":"x"}],"%s":%s}' % (name.encode(), value)))


def test_lone_surrogates_pass_as_replacement_characters_and_are_counted_once(post, session):
    history = rb'{"role":"user","content":"a\ud800 \ud83d\ude00 \\ud800"}'
    post(b'{"messages":[%s]}' % history)
    assert session.request.messages[0].content == "a\ufffd \U0001f600 \\ud800"
    assert session.request.normalised == {"lone_surrogate": 1}
    post(rb'{"\udfff":1,"messages":[%s,{"role":"assistant"},{"role":"user","content":"\uDC00"}]}' % history)
    assert session.request.normalised == {"lone_surrogate": 1, "ignored_field:\ufffd": 1}


def test_a_compressed_body_is_refused_like_any_other_nonsense(post):
    assert error_of(post(b"\x1f\x8b\x08\x00"))


def test_an_unchanged_history_leaves_no_memory_behind(post, session):
    body = json.dumps({"messages": [{"role": "user", "content": f"{n} " + "x" * 400} for n in range(200)]}).encode()
    for _ in range(3):
        post(body)
    session.requests.clear()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            post(body)
            session.requests.clear()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < len(body)
