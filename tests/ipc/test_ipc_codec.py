"""Everything that crosses between our processes comes back equal."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.samples import ContextPath, Sample, SampleGroup, Segment, TrainBatch, TrainReport
from relaxforge.core.sessions import AgentExit, AgentLaunch, AgentOutput, ExportRecord, Failure, FailureCategory, Task
from relaxforge.core.turns import (
    Capabilities,
    Capacity,
    FinishReason,
    GenerateRequest,
    Generation,
    Observation,
    Sampling,
    TokenChunk,
    VersionSpan,
    WeightUpdate,
    log_probs,
    token_ids,
)
from relaxforge.ipc.codec import decode, encode, shape
from relaxforge.ipc.frames import HEADER, Frame, pack, unpack

SPANS = (VersionSpan(3, 0, 2), VersionSpan(4, 2, 3))
IDS = token_ids([1, 151643, 2**31 - 1])
LOGPROBS = log_probs([-0.25, 0.0, -1e30])
SEGMENTS = (Segment(IDS), Segment(IDS, LOGPROBS, SPANS))
GROUP = SampleGroup(
    "train-g000001", SEGMENTS, (ContextPath("train-g000001-00", None, (0, 1), 0.5, 1.0),
                                ContextPath("train-g000001-01", "main", (0, 1), -0.5, 0.0, truncated=True)),
)  # fmt: skip

VALUES = [
    GenerateRequest("s-0", "r-1", IDS, 2, Sampling(16, 0.7, 0.9, 40, ("\n\n", "é"), (2,), seed=11)),
    GenerateRequest("s-0", "r-2", token_ids(), 0, Sampling(1)),
    Generation(IDS, LOGPROBS, SPANS, FinishReason.STOP, cached_tokens=5, stop_match="\n\n"),
    Generation(token_ids(), log_probs(), (), FinishReason.ABORT),
    TokenChunk("r-1", IDS, LOGPROBS, 4),
    WeightUpdate(5, "/dev/shm/weights-5"),
    Capabilities(per_request_seed=True, cached_tokens=False, max_context=None),
    Capacity(3, 1, 4096, None),
    TrainBatch(7, (GROUP,), 1.0),
    TrainBatch(8, (), 0.5),
    TrainReport(7, 8, {"train/loss": -0.125}),
    Sample("main", "s3", IDS, 1, token_ids([1, 0]), log_probs([-1.0, 0.0]), SPANS, 2, "completed", 1.0, None, {"a": 1}),
    AgentLaunch("s-0", "true", "/tmp", "/tmp/s-0", {"PATH": "/bin"}),
    AgentExit("s-0", None, 9, 1.5, survivors=2),
    AgentOutput({"a": [1, None]}, {"acc": 1.0}, (ExportRecord("main", ({"role": "user", "content": "x"},)),), ("x",)),
    Failure(FailureCategory.BAD_OUTPUT, "line 2", "tail"),
    Task(3, ({"role": "user", "content": "x"},), None, label=[1, 2]),
    Observation(IDS, {"system": 1}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_equal_from_another_process(value: Any) -> None:
    assert shape(decode(encode(value)), type(value)) == value


def test_arrays_cost_their_bytes_and_stay_arrays() -> None:
    ids, logprobs = token_ids(range(10_000)), log_probs([-0.5] * 10_000)
    data = encode({"ids": ids, "logprobs": logprobs})
    assert len(data) < 8 * 10_000 + 100
    back = decode(data)
    assert (back["ids"], back["logprobs"]) == (ids, logprobs)
    assert isinstance(back["ids"], array)


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.lists(st.floats(width=32, allow_nan=False)))
def test_any_segment_comes_back_bit_for_bit(ids: list[int], logprobs: list[float]) -> None:
    segment = Segment(token_ids(ids), log_probs(logprobs))
    back = shape(decode(encode(segment)), Segment)
    assert (back.tokens.tobytes(), back.logprobs.tobytes()) == (segment.tokens.tobytes(), segment.logprobs.tobytes())


def test_what_is_no_value_does_not_cross() -> None:
    with pytest.raises(TypeError, match="object cannot cross a process boundary"):
        encode({"x": object()})


def test_a_wrong_shape_names_the_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"sampling.*max_tokens|max_tokens.*sampling"):
        shape({"session_id": "s", "request_id": "r", "prompt_ids": IDS, "delta_start": 0,
               "sampling": {"max_tokens": "many"}}, GenerateRequest)  # fmt: skip
    with pytest.raises(msgspec.ValidationError, match="prompt_ids"):
        shape({"session_id": "s", "request_id": "r", "prompt_ids": "text", "delta_start": 0,
               "sampling": {"max_tokens": 1}}, GenerateRequest)  # fmt: skip


BODIES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["call", "reply", "error", "event", "notice"]), st.integers(0, 2**40), st.text(), BODIES)
def test_frames_are_length_prefixed_and_come_back_equal(kind: Any, number: int, method: str, body: Any) -> None:
    frame = Frame(kind, number, method, body)
    data = pack(frame)
    assert int.from_bytes(data[:HEADER], "little") == len(data) - HEADER
    assert unpack(data[HEADER:]) == frame
