"""One Session on the screen: its branches message by message, every sampled token with logprob, mask and version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

TokenTexts = Callable[[Sequence[int]], list[str]]
"""The text of each token id; an implementation without a tokenizer answers with the ids."""

_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}


def visible(text: str) -> str:
    """Text that cannot drive the terminal: control characters become their pictures."""
    return text.translate(_PICTURES)


@dataclass(frozen=True, slots=True)
class Branch:
    """States from the first message to an exported Context, or to a leaf that nobody exported.

    ``mask`` has one entry per token of the branch; it is empty where nothing of it is trained.
    """

    title: str
    states: tuple[Mapping[str, Any], ...]
    mask: tuple[int, ...] = ()


def print_conversation(line: Mapping[str, Any], texts: TokenTexts, console: Console) -> None:
    """Print one dump line."""
    console.print(_heading(line))
    shown: set[str] = set()
    for branch in branches(line):
        console.print(Rule(visible(branch.title), align="left", style="dim"))
        position = 0
        for state in branch.states:
            mask = branch.mask[position : position + len(state["tokens"])]
            position += len(state["tokens"])
            _print_state(state, mask, texts, console, repeated=state["state"] in shown)
            shown.add(state["state"])
    if failure := line.get("failure"):
        console.print(Rule("failure", align="left", style="red"))
        console.print(Text(visible(f"{failure['category']}: {failure['message']}\n{failure.get('log_tail') or ''}")))


def branches(line: Mapping[str, Any]) -> Iterator[Branch]:
    """The exported Contexts, then every leaf that is on none of them."""
    forest = {state["state"]: state for state in line["forest"]}
    covered: set[str] = set()
    for sample in line["samples"]:
        states = tuple(_lineage(forest, sample["state"]))
        covered.update(state["state"] for state in states)
        mask = (0,) * sample["prompt_length"] + tuple(sample["loss_mask"])
        credit = f"reward {_number(sample['reward'])}, advantage {_number(sample['advantage'])}"
        title = f"context {sample['name'] or '(implicit)'}: {credit}"
        yield Branch(title, states, mask)
    parents = {state["parent"] for state in line["forest"]}
    for name in forest:
        if name not in parents and name not in covered:
            yield Branch(f"not exported: ends at state {name}", tuple(_lineage(forest, name)))


def _lineage(forest: Mapping[str, Mapping[str, Any]], name: str | None) -> list[Mapping[str, Any]]:
    states: list[Mapping[str, Any]] = []
    while name is not None and name in forest:
        states.append(forest[name])
        name = forest[name]["parent"]
    return states[::-1]


def _heading(line: Mapping[str, Any]) -> Text:
    seconds = ", ".join(f"{name} {value:.2f}" for name, value in line["duration_s"].items() if value is not None)
    tokens = line["tokens"]
    masked = ", ".join(f"{count} {reason}" for reason, count in tokens["masked"].items()) or "0"
    lines = [
        f"{line['session_id']}  step {line['rollout_id']}  {line['mode']}  {line['status']}  "
        f"reward {_number(line['reward'])}",
        f"{line['turns']} turns; seconds: {seconds or '-'}",
        f"sampled tokens: {tokens['sampled']} = trained {tokens['trained']} + masked {masked} "
        f"+ undelivered {tokens['undelivered']}",
    ]
    refused = [f"{r['request_id']}: {r['http_status']} {r['error']}" for r in line["requests"] if r.get("error")]
    lines += [f"drift in {note['request_id']}: {note['cause']}: {note.get('excerpt', '')}" for note in line["drift"]]
    return Text(visible("\n".join(lines + refused)))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _print_state(
    state: Mapping[str, Any], mask: Sequence[int], texts: TokenTexts, console: Console, *, repeated: bool
) -> None:
    count = len(state["tokens"])
    if repeated:
        console.print(Text(f"state {state['state']}: as above", "dim"))
        return
    if state["kind"] == "observation":
        for message in state["message"] if isinstance(state["message"], list) else [state["message"]]:
            console.print(_message(message, "cyan"))
        console.print(Text(f"  tokens: {count}, mask 0", "dim"))
        return
    console.print(_message(state["message"], "bold"))
    note = f"  state {state['state']}, tokens: {count}, {state['finish_reason']}"
    console.print(Text(note + ("" if state.get("delivered", True) else ", undelivered"), "dim"))
    cells = [_token(*token) for token in _tokens(state, mask, texts)]
    console.print(Padding(Columns(cells, padding=(0, 2)), (0, 0, 0, 2)))


def _tokens(
    state: Mapping[str, Any], mask: Sequence[int], texts: TokenTexts
) -> Iterator[tuple[str, float, int, int | None]]:
    """(text, logprob, mask, weight version) of each token of an answer."""
    versions: dict[int, int] = {}
    for version, start, end in state["weight_versions"]:
        versions.update(dict.fromkeys(range(start, end), version))
    for place, (text, logprob) in enumerate(zip(texts(state["tokens"]), state["logprobs"], strict=True)):
        yield text, logprob, mask[place] if mask else 0, versions.get(place)


def _token(text: str, logprob: float, mask: int, version: int | None) -> Text:
    style = "green" if logprob > -0.5 else "yellow" if logprob > -2 else "red"
    shown = visible(text).replace("\n", "⏎").replace("\t", "→").replace(" ", "·")
    return Text.assemble(
        (shown, style if mask else f"dim {style}"),
        (f" {logprob:.2f} mask {mask} v{'-' if version is None else version}", "dim"),
    )


def _message(message: Mapping[str, Any], style: str) -> Text:
    content = message.get("content")
    parts = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""]
    if reasoning := message.get("reasoning_content"):
        parts.insert(0, f"(reasoning) {reasoning}\n")
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    parts += [f"\n(call) {call['name']} {call['arguments']}" for call in calls]
    return Text.assemble((f"{message['role']}: ", style), visible("".join(parts)))
