"""The ``qwen`` and ``think`` parsers against a published corpus of model outputs (``canitoolcall``, Apache-2.0)."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from relaxforge.render.parsers.hermes import hermes
from relaxforge.render.parsers.think import opens_think, think

CORPUS = Path(find_spec("canitoolcall").submodule_search_locations[0]) / "_data" / "fixtures" / "qwen3-hermes"

# The corpus wants the complete first call when the second one is cut; here an answer is understood whole or not at all.
DECIDED_OTHERWISE = {"qwen3-hermes/truncated-second-parallel-call"}


def outputs():
    lines = [line for file in sorted(CORPUS.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("output", outputs(), ids=lambda output: output["id"])
def test_published_outputs_are_read_as_published(output):
    raw = output["raw_output"].removesuffix("<|im_end|>")
    expected = output.get("expected") or {}
    wanted = [(made["name"], made["arguments"]) for made in expected.get("tool_calls") or []]
    reasoning, text = think(raw, opens_think(output["generation_prompt"] or ""))
    reading = hermes(text, ())
    calls = [(name, json.loads(arguments)) for name, arguments in reading.calls]
    if output["id"] in DECIDED_OTHERWISE:
        assert (calls, reading.text) == ([], text)
    elif output["tools"]:
        assert calls == [(name, json.loads(given) if isinstance(given, str) else given) for name, given in wanted]
    if expected and not reading.malformed:
        assert reasoning.strip() == (expected.get("reasoning_content") or expected.get("reasoning") or "").strip()
        assert reading.text.strip() == (expected.get("content") or "").strip()
