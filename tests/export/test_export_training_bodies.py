"""What a run sends to a workspace arrives as it was, and what cannot be read names its path."""

import json

import pytest

from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep, TrialEvidence, Verdict
from relaxforge.export.errors import BodyError
from relaxforge.export.training_bodies import (
    read_run,
    read_sessions,
    read_steps,
    run_body,
    sessions_body,
    steps_body,
)

EVIDENCE = TrialEvidence(
    "failed", Verdict(None, "out_of_range", "1.5", {"stage_a": 1}, {"x": 0.5}, "agent_error"), b'{"schemaVersion":1}',
    '{"text":"ä"}'.encode(), 3, True, "boom", 2, 10, 20, 1.5, {"active": 1.0}, {"nul": 1},
)  # fmt: skip
SESSION = TrainingSession("train-g000000-01-i2", 7, "train-g000000", "train", 4, 2, -5, 9, EVIDENCE)


def test_sessions_steps_and_the_run_arrive_as_they_were():
    card = TrainingRunCard("k", "run", {"model": "tiny", "agent_env": ["A=<redacted>"]})
    step = TrainingStep("eval", 3, "held-out", 1, {"a/b": 0.5, "none": None})
    assert read_run(run_body(card)) == card
    assert read_sessions(sessions_body([SESSION, SESSION])) == [SESSION, SESSION]
    assert read_steps(steps_body([step])) == [step]


def test_the_names_are_those_of_the_api():
    [row] = json.loads(sessions_body([SESSION]))["sessions"]
    assert (row["sessionKey"], row["rewardStatus"], row["stages"]) == ("train-g000000-01-i2", "out_of_range",
                                                                       {"stage_a": 1})  # fmt: skip
    assert (row["durationS"], row["worldSeed"]) == (1.5, 9)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reward": 1.2}, "sessions[0].reward"),
        ({"taskIndex": -1}, "sessions[0].taskIndex"),
        ({"attemptNo": 0}, "sessions[0].attemptNo"),
        ({"seed": 2**64}, "sessions[0].seed"),
        ({"status": "running"}, "sessions[0].status"),
        ({"stages": {"stage_a": "1"}}, "sessions[0].stages[...]"),
        ({"trajectory": "steps"}, "sessions[0].trajectory"),
        ({"sessionKey": ""}, "sessions[0].sessionKey"),
        ({"colour": "red"}, "sessions[0]"),
    ],
)
def test_a_value_that_cannot_be_is_named_by_its_path(change, field):
    body = json.loads(sessions_body([SESSION]))
    body["sessions"][0].update(change)
    with pytest.raises(BodyError) as caught:
        read_sessions(json.dumps(body).encode())
    assert caught.value.field == field


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"sessions": [NaN]}', b"[" * 100_000])
def test_what_is_no_body_is_refused(body):
    with pytest.raises(BodyError):
        read_sessions(body)
