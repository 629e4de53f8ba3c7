"""Rollouts as training rows: TRL's SFT, preference and KTO, and OpenAI's DPO.

Tool-call arguments are JSON text in every one of them, as the providers of chat models have it: as objects, their keys
would differ from row to row, and readers infer one schema for the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from relaxforge.core.evidence import StoredRollout
from relaxforge.core.messages import canonical_arguments
from relaxforge.export.content import text_of
from relaxforge.export.conversation import Conversation, conversation_of
from relaxforge.export.lines import encode_line

Message = dict[str, Any]


def sft_line(rollout: StoredRollout) -> bytes | None:
    """``{"messages", "tools"}``: the whole main conversation. Which rollouts are worth imitating, the kind says."""
    conversation = conversation_of(rollout.session)
    if conversation is None or not _ends_in_an_answer(conversation):
        return None
    return encode_line({"messages": _shaped(conversation.messages), "tools": _tool_text(conversation)})


def kto_line(rollout: StoredRollout) -> bytes | None:
    """``{"prompt", "completion", "label", "tools"}``: everything from the first answer on, good if the reward is 1."""
    conversation = conversation_of(rollout.session)
    if conversation is None or rollout.reward is None or not _ends_in_an_answer(conversation):
        return None
    messages = _shaped(conversation.messages)
    first = next(place for place, message in enumerate(messages) if message["role"] == "assistant")
    if first == 0:
        return None
    row = {"prompt": messages[:first], "completion": messages[first:], "label": rollout.reward == 1}
    return encode_line({**row, "tools": _tool_text(conversation)})


def preference_line(better: StoredRollout, worse: StoredRollout) -> bytes | None:
    """``{"prompt", "chosen", "rejected", "tools"}`` at the first Turn in which two attempts at one Task differ."""
    split = diverging_turn(better, worse)
    if split is None:
        return None
    row = {"prompt": split.prompt, "chosen": [split.chosen], "rejected": [split.rejected]}
    return encode_line({**row, "tools": msgspec.json.encode(split.tools).decode()})


def openai_dpo_line(better: StoredRollout, worse: StoredRollout) -> bytes | None:
    """OpenAI's preference row: one assistant message on each side, which is why it is one Turn."""
    split = diverging_turn(better, worse)
    if split is None:
        return None
    given = {"messages": split.prompt, "tools": split.tools, "parallel_tool_calls": True}
    row = {"input": given, "preferred_output": [split.chosen], "non_preferred_output": [split.rejected]}
    return encode_line(row)


@dataclass(frozen=True, slots=True)
class Split:
    """Two answers to one and the same prompt."""

    prompt: list[Message]
    chosen: Message
    rejected: Message
    tools: list[Message]


def diverging_turn(better: StoredRollout, worse: StoredRollout) -> Split | None:
    """The first answers of two attempts that differ although everything before them is equal.

    ``None`` when the histories part anywhere else (another Task, another tool result), or not at all: nothing could be
    learned from such a pair.
    """
    good, bad = conversation_of(better.session), conversation_of(worse.session)
    if good is None or bad is None or good.tools != bad.tools:
        return None
    ours, theirs = _shaped(good.messages), _shaped(bad.messages)
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if _meaning(one) == _meaning(other):
            continue
        answers = one["role"] == other["role"] == "assistant"
        return Split(ours[:place], one, other, good.tools) if answers and place else None
    return None


def _meaning(message: Message) -> Message:
    """A message without the ids that every attempt draws anew."""
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls, "tool_call_id": ""}


def _shaped(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages with text as content; what a message does not have is left out."""
    return [_shape(message) for message in messages]


def _shape(message: Mapping[str, Any]) -> Message:
    shaped: Message = {"role": message["role"], "content": text_of(message)}
    if reasoning := message.get("reasoning_content"):
        shaped["reasoning_content"] = reasoning
    if calls := message.get("tool_calls"):
        shaped["tool_calls"] = [_call(call) for call in calls]
    if message.get("tool_call_id") is not None:
        shaped["tool_call_id"] = message["tool_call_id"]
    return shaped


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = canonical_arguments(function["arguments"])
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _tool_text(conversation: Conversation) -> str:
    return msgspec.json.encode(conversation.tools).decode()


def _ends_in_an_answer(conversation: Conversation) -> bool:
    return bool(conversation.messages[-1]["role"] == "assistant")
