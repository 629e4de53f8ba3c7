"""Design decision 9: retries do not fork, repeated sampling does."""

import asyncio

import pytest

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message, RetryHint
from relaxforge.core.turns import ModelTurn, Usage
from relaxforge.forest.state import Kind, State
from relaxforge.rollout.requests import RequestRecord, RetryBook, Served

BODY, OTHER_BODY = b"body", b"other"


def served(fate: str, name: str = "r0", hint: RetryHint | None = None) -> Served:
    """A request that is in flight, was answered (read, lost, or read by a replay), or failed. Needs a running loop."""
    future = asyncio.get_running_loop().create_future()
    record = RequestRecord(name, "chat", 0.0)
    if fate != "in flight":
        record.state = State(2, Kind.RESPONSE, None, b"")
        if fate == "failed":
            future.set_exception(RequestError("no", status=500))
        else:
            future.set_result(ModelTurn(name, Message("assistant", "a"), "stop", Usage(1, 1)))
            record.delivered = fate == "read"
            record.state.delivered = int(fate in ("read", "read by a replay"))
    return Served(record, hint or RetryHint(BODY), asyncio.ensure_future(future))


def decide(policy, fate, hint, earlier_hint=None):
    """Whether ``hint`` is answered with the earlier answer."""

    async def main():
        book = RetryBook(policy)
        first = served(fate, hint=earlier_hint)
        book.note(first)
        await asyncio.sleep(0)  # the loop tells the book that the answer is there
        found = book.earlier(hint)
        assert found in (None, first)
        return found is first

    return asyncio.run(main())


UNMARKED, MARKED = RetryHint(BODY), RetryHint(BODY, retry_count=1)


@pytest.mark.parametrize(
    ("policy", "fate", "unmarked", "marked"),
    [
        ("auto", "in flight", False, True),
        ("auto", "read", False, True),
        ("auto", "lost", True, True),
        ("auto", "read by a replay", False, True),
        ("auto", "failed", False, False),
        ("replay", "in flight", True, True),
        ("replay", "read", True, True),
        ("replay", "lost", True, True),
        ("replay", "failed", False, False),
        ("branch", "in flight", False, False),
        ("branch", "read", False, False),
        ("branch", "lost", False, False),
        ("branch", "failed", False, False),
    ],
)
def test_what_an_equal_body_means(policy, fate, unmarked, marked):
    assert decide(policy, fate, UNMARKED) is unmarked
    assert decide(policy, fate, MARKED) is marked


@pytest.mark.parametrize("hint", [RetryHint(OTHER_BODY), RetryHint(OTHER_BODY, retry_count=3)])
def test_another_body_is_another_request(hint):
    assert not decide("auto", "lost", hint)
    assert not decide("replay", "read", hint)


@pytest.mark.parametrize(
    ("fate", "body", "key", "replayed"),
    [
        ("in flight", BODY, "k", True),
        ("read", BODY, "k", True),
        ("failed", BODY, "k", False),
        ("read", BODY, "other", False),
        ("lost", BODY, "other", True),
        ("read", OTHER_BODY, "k", False),
    ],
)
def test_an_equal_idempotency_key_marks_a_retry_of_the_same_body(fate, body, key, replayed):
    earlier = RetryHint(BODY, idempotency_key="k")
    assert decide("auto", fate, RetryHint(body, idempotency_key=key), earlier) is replayed


def retries_of(fates, hints):
    async def main():
        book = RetryBook("auto")
        requests = [served(fate, f"r{number}") for number, fate in enumerate(fates)]
        for request in requests:
            book.note(request)
        await asyncio.sleep(0)
        found = [book.earlier(hint) for hint in hints]
        return [earlier and earlier.record.request_id for earlier in found]

    return asyncio.run(main())


def test_a_retry_among_equal_requests_gets_the_answer_that_was_lost():
    assert retries_of(["lost", "read", "read"], [UNMARKED]) == ["r0"]
    assert retries_of(["read", "lost", "in flight"], [MARKED]) == ["r1"]


def test_a_retry_prefers_a_generation_in_flight_to_an_answer_that_was_read():
    assert retries_of(["in flight", "read"], [MARKED]) == ["r0"]


def test_every_lost_sibling_is_given_to_a_retry_of_its_own():
    assert sorted(retries_of(["lost", "lost", "lost"], [UNMARKED] * 3)) == ["r0", "r1", "r2"]
    assert sorted(retries_of(["in flight", "in flight"], [MARKED] * 2)) == ["r0", "r1"]


@pytest.mark.parametrize(("policy", "found"), [("auto", False), ("replay", True)])
def test_an_answer_that_was_built_upon_is_replayed_only_where_every_repetition_is(policy, found):
    async def main():
        book = RetryBook(policy)
        first = served("read")
        assert first.record.state is not None
        first.record.state.children = (first.record.state,)
        book.note(first)
        book.note(served("read", hint=RetryHint(b"another body")))
        await asyncio.sleep(0)
        return book.earlier(MARKED) is first

    assert asyncio.run(main()) is found
