"""The dump line: one Session as JSON, whatever became of it."""

import json

import msgspec
import pytest
from rollout_parts import SEARCH, HeardEngine, ask, new_session, run, says, user

from relaxforge.core.errors import RequestError
from relaxforge.core.messages import Message
from relaxforge.core.sessions import Failure, FailureCategory, Task
from relaxforge.forest.lineage import sample
from relaxforge.forest.select import Context, implicit_context
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.record import dump_line

LINE = [
    "schema_version", "run_id", "incarnation", "rollout_id", "group_id", "session_id", "mode", "task_index", "task",
    "seed", "status", "failure", "drop_reason", "reward", "reward_detail", "advantage", "metadata", "verdict",
    "duration_s", "turns", "abort_count", "tools", "forest", "steps", "requests", "drift",
    "render_differences", "samples", "tokens",
]  # fmt: skip
STATE = [
    "state", "parent", "kind", "hash", "message", "tokens", "logprobs", "weight_versions", "finish_reason", "delivered",
    "request_id",
]  # fmt: skip
REQUEST = [
    "request_id", "api", "parent_state", "state", "http_status", "error", "new_messages", "normalised", "delivered",
    "retry_of", "attempts", "usage", "timing",
]  # fmt: skip
DRIFT = ["request_id", "message_index", "cause", "excerpt", "tokens_without_signal"]
SAMPLE = [
    "name", "state", "tokens", "prompt_length", "response_length", "loss_mask", "logprobs", "weight_versions", "turns",
    "terminal_status", "reward", "advantage", "metadata",
]  # fmt: skip
TOKENS = ["sampled", "trained", "masked", "undelivered", "repeats"]


def dumped(outcome):
    """The line as somebody reads it from the file."""
    line = dump_line(outcome, run_id="run", incarnation=2, rollout_id=5)
    data = msgspec.json.encode(line)
    assert b"\n" not in data
    read = json.loads(data)
    assert json.loads(json.dumps(line)) == read
    return read


async def busy_session(renderer):
    """Two Turns of a main history, a side question, a lost answer, a rewritten one, a refused and a failed request."""
    replies = says("<think>\nhm\n</think>\n\nfirst", "second", "side", "lost", "rewritten from")
    engine = HeardEngine(renderer, replies)
    session = new_session(renderer, engine, task=Task(4, None, {"id": "x"}))
    first = await ask(session, user("q"))
    await ask(session, user("q"), Message("assistant", "first"), user("r"))
    await ask(session, user("side question"), tools=(SEARCH,))
    await ask(session, user("lost?"), read=False)
    await ask(session, user("q"), Message("assistant", "never said"), user("s"))
    session.refused("chat", RequestError("no such role", param="messages[0].role"))
    main = next(state for state in session.forest.responses if state.messages[0].text == "second")
    assert first.message.reasoning == "hm"
    return session, Context("main", main)


def finished(renderer, **fate):
    async def main():
        session, context = await busy_session(renderer)
        outcome = Outcome(session, contexts=(context,), **fate)
        outcome.durations = {"prepare": 0.5, "active": 1.25}
        return outcome

    return run(main())


def test_the_line_has_exactly_its_fields(renderer):
    line = dumped(finished(renderer, reward=1.0, advantage=0.5, metadata={"n": 1}))
    assert list(line) == LINE
    assert all([key for key in state if key != "tools"] == STATE for state in line["forest"])
    assert all(list(request) == REQUEST for request in line["requests"])
    assert all(list(note) == DRIFT for note in line["drift"])
    assert all(list(row) == SAMPLE for row in line["samples"])
    assert list(line["tokens"]) == TOKENS
    assert (line["schema_version"], line["run_id"], line["incarnation"], line["rollout_id"]) == (1, "run", 2, 5)
    assert (line["task_index"], line["task"], line["mode"], line["seed"]) == (4, {"id": "x"}, "train", 7)
    assert (line["turns"], line["abort_count"]) == (5, 0)


def test_the_forest_is_complete_and_its_names_lead_from_one_state_to_the_next(renderer):
    outcome = finished(renderer)
    line = dumped(outcome)
    states = {state["state"]: state for state in line["forest"]}
    assert len(states) == len(line["forest"]) == 10
    for state in states.values():
        assert state["parent"] is None or state["parent"] in states
        sampled = state["kind"] == "response"
        assert isinstance(state["message"], dict if sampled else list)
        assert (state["logprobs"] is None, state["delivered"] is None) == (not sampled, not sampled)
        if sampled:
            assert len(state["logprobs"]) == len(state["tokens"])
            assert state["weight_versions"] == [[0, 0, len(state["tokens"])]]
    for request in line["requests"]:
        assert request["state"] is None or request["state"] in states
        assert request["parent_state"] is None or request["parent_state"] in states


def test_requests_tell_what_was_overlooked_what_drifted_and_what_was_refused(renderer):
    line = dumped(finished(renderer))
    requests = line["requests"]
    assert [request["http_status"] for request in requests] == [200, 200, 200, 200, 200, 400]
    assert requests[1]["normalised"] == {"reasoning_dropped": 1}
    assert [request["delivered"] for request in requests] == [True, True, True, False, True, None]
    assert (requests[5]["error"], requests[5]["state"]) == ("no such role", None)
    assert requests[0]["attempts"] == [
        {"weight_version": 0, "tokens": len(line["forest"][1]["tokens"]), "aborted": False}
    ]
    assert {"arrived_s", "held_s", "generation_s"} <= requests[0]["timing"].keys()
    (note,) = line["drift"]
    assert (note["request_id"], note["message_index"], note["cause"]) == (requests[4]["request_id"], 1, "rewritten")
    assert note["tokens_without_signal"] == len(line["forest"][1]["tokens"])


def test_a_sample_is_prompt_and_response_with_lists_of_the_responses_length(renderer):
    outcome = finished(renderer, reward=0.5, advantage=-1.0)
    (row,) = dumped(outcome)["samples"]
    expected = sample(outcome.contexts[0])
    assert row["tokens"] == expected.tokens.tolist()
    assert len(row["tokens"]) == row["prompt_length"] + row["response_length"]
    assert row["loss_mask"] == expected.loss_mask.tolist()
    assert len(row["loss_mask"]) == len(row["logprobs"]) == row["response_length"]
    assert row["logprobs"] == expected.logprobs.tolist()
    assert row["weight_versions"] == [[span.version, span.start, span.end] for span in expected.versions]
    assert (row["name"], row["turns"], row["reward"], row["advantage"]) == ("main", 2, 0.5, -1.0)


@pytest.mark.parametrize(
    ("fate", "status", "reason"),
    [
        ({}, "completed", "not_exported"),
        ({"failure": Failure(FailureCategory.AGENT_ERROR, "exit 3", "tail")}, "failed", "session_failed"),
        ({"drop_reason": "group_dropped: train-g000000-01 agent_error"}, "dropped", "group_dropped"),
        ({"drop_reason": "surplus"}, "dropped", "surplus"),
        ({"drop_reason": "filtered: --dynamic-sampling-filter-path"}, "filtered", "group_filtered"),
    ],
)
def test_every_sampled_token_is_accounted_for_however_the_session_ended(renderer, fate, status, reason):
    outcome = finished(renderer, **fate)
    line = dumped(outcome)
    tokens = line["tokens"]
    assert line["status"] == status
    assert tokens["sampled"] == sum(len(state["tokens"]) for state in line["forest"] if state["kind"] == "response")
    assert tokens["sampled"] == tokens["trained"] + sum(tokens["masked"].values()) + tokens["undelivered"]
    assert list(tokens["masked"]) == [reason]
    assert tokens["undelivered"] > 0
    assert bool(tokens["trained"]) is (status == "completed")


def test_a_failure_is_told_with_its_category_message_and_log(renderer):
    failure = Failure(FailureCategory.AGENT_TIMEOUT, "took too long", "last words")
    line = dumped(finished(renderer, failure=failure, drop_reason=None))
    assert line["failure"] == {"category": "agent_timeout", "message": "took too long", "log_tail": "last words"}


def test_a_session_that_ended_before_anything_happened_has_a_line_too(renderer):
    line = dumped(Outcome(new_session(renderer, HeardEngine(renderer, says("a")))))
    assert list(line) == LINE
    assert (line["forest"], line["requests"], line["samples"], line["turns"]) == ([], [], [], 0)
    assert line["tokens"] == {"sampled": 0, "trained": 0, "masked": {}, "undelivered": 0, "repeats": 0}


def test_a_cut_last_answer_makes_a_session_truncated(renderer):
    async def main():
        session = new_session(renderer, HeardEngine(renderer, says("a long answer")))
        await ask(session, user("q"), max_tokens=1)
        return Outcome(session, contexts=(implicit_context(session.forest, "linear"),))

    line = dumped(run(main()))
    assert (line["status"], line["samples"][0]["terminal_status"]) == ("truncated", "truncated")
    assert line["tokens"]["trained"] == 1


def test_the_first_failure_of_a_session_stays(renderer):
    outcome = Outcome(new_session(renderer, HeardEngine(renderer, says("a"))))
    outcome.fail(Failure(FailureCategory.AGENT_ERROR, "first"))
    outcome.fail(Failure(FailureCategory.BAD_OUTPUT, "second"))
    assert outcome.failure.message == "first"
