"""Every parser against a published corpus of model outputs of nine families (``canitoolcall``, Apache-2.0)."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.registry import reasoning_parser, tool_call_parser
from relaxforge.render.parsers.think import opens_think

CORPUS = Path(find_spec("canitoolcall").submodule_search_locations[0]) / "_data" / "fixtures"

# family of the corpus -> (tool-call parser, reasoning parser)
PARSERS = {
    "deepseek": ("deepseek", "deepseek"),
    "gemma4": ("gemma4", "gemma4"),
    "glm": ("glm", "glm"),
    "gpt-oss": ("gpt-oss", "gpt-oss"),
    "kimi": ("kimi", "kimi"),
    "llama": ("llama3", "none"),
    "mistral": ("mistral", "mistral"),
    "qwen3-hermes": ("qwen", "qwen"),
    "qwen3-xml": ("qwen3-coder", "qwen"),
}

# The corpus wants what can be saved; here an answer is understood whole or not at all, and then it stays plain text.
WHOLE_OR_NOT_AT_ALL = {
    "deepseek/v32-truncated-second-parallel-call",
    "deepseek/v4-truncated-second-parallel-call",
    "deepseek/v41-truncated-second-parallel-call",
    "gemma4/truncated-second-parallel-call",
    "glm/glm47-missing-last-close-arg-value",
    "gpt-oss/harmony-truncated-in-header",
    "gpt-oss/llamacpp-builtin-python-recipient",
    "kimi/k2i-vllm-noise-between-markers",
    "mistral/v13think-stop-at-open-marker",
    "qwen3-hermes/truncated-second-parallel-call",
    "qwen3-xml/q38-truncated-at-tool-call-open",
}
# A block of reasoning that never ends is reasoning, whatever it speaks of.
CALL_IN_OPEN_REASONING = {"qwen3-xml/llamacpp-q35-call-inside-think"}
# Calls written as Python: no parser of ours.
PYTHON_CALLS = "meta-llama/Llama-4"


def outputs():
    lines = [line for file in sorted(CORPUS.glob("*/*.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def family(slug):
    return json.loads((CORPUS / slug / "family.json").read_text("utf-8"))


FAMILIES = {slug: family(slug) for slug in PARSERS}


def parsers(output):
    calls, thoughts = ("kimi-k3", "kimi-k3") if "Kimi-K3" in output["models"][0] else PARSERS[output["family"]]
    return tool_call_parser(calls), reasoning_parser(thoughts) or (lambda text, opened: ("", text))


def prompt(output):
    given = output.get("generation_prompt")
    models = FAMILIES[output["family"]]["reference_models"]
    usual = (model["default_generation_prompt"] for model in models if model["repo"] == output["models"][0])
    return next(usual, "") if given is None else given


def offered(output):
    functions = [tool["function"] for tool in output["tools"] or []]
    return tuple(Tool(made["name"], "", canonical_json(made.get("parameters") or {})) for made in functions)


def read(output):
    """(reasoning, reading) of a published output, without its end token."""
    raw = output["raw_output"]
    for end in FAMILIES[output["family"]]["reference_models"][0]["stop_tokens"]:
        raw = raw.removesuffix(end)
    calls, thoughts = parsers(output)
    reasoning, text = thoughts(raw, opens_think(prompt(output)))
    return reasoning, text, calls(text, offered(output))


def wanted_calls(output):
    made = output.get("expected", {}).get("tool_calls") or []
    return [(call["name"], canonical_json(call["arguments"])) for call in made]


def test_every_family_of_the_corpus_has_a_parser():
    assert {output["family"] for output in outputs()} == set(PARSERS)


@pytest.mark.parametrize("output", outputs(), ids=lambda output: output["id"])
def test_published_outputs_are_read_as_published(output):
    reasoning, text, reading = read(output)
    if output["models"][0].startswith(PYTHON_CALLS):
        assert (reading.calls, reading.text) == ((), text)
        return
    if output["id"] in WHOLE_OR_NOT_AT_ALL:
        assert reading.malformed
        assert (reading.calls, reading.text) == ((), text)
        return
    if output["id"] in CALL_IN_OPEN_REASONING:
        assert (reading.calls, reading.text) == ((), "")
        return
    assert list(reading.calls) == wanted_calls(output)
    if expected := output.get("expected"):
        assert reading.malformed is None
        assert reasoning.strip() == (expected.get("reasoning_content") or "").strip()
        assert reading.text.strip() == (expected.get("content") or "").strip()
