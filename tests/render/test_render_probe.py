"""What the start-up probe finds out about real templates."""

import pytest

BAR = "\uff5c"  # the full-width bar of DeepSeek's control tokens


@pytest.mark.parametrize(
    ("family", "closing", "opening"),
    [
        ("smollm2", "<|im_end|>\n", "<|im_start|>assistant\n"),
        ("qwen2_5", "<|im_end|>\n", "<|im_start|>assistant\n"),
        ("qwen3", "<|im_end|>\n", "<|im_start|>assistant\n"),
        ("llama3_1", "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("gemma", "<end_of_turn>\n", "<start_of_turn>model\n"),
        ("deepseek_r1_distill", f"<{BAR}end▁of▁sentence{BAR}>", f"<{BAR}Assistant{BAR}><think>\n"),
        ("mistral_v3", "</s>", ""),
        ("gptoss", "<|end|>", "<|start|>assistant"),
    ],
)
def test_closing_and_generation_prompt_are_learned(load, family, closing, opening):
    found = load(family).properties
    assert (found.closing, found.generation_prompt) == (closing, opening)


@pytest.mark.parametrize(
    ("family", "level", "tool_level"),
    [
        ("smollm2", "bare", "bare"),
        ("qwen2_5", "bare", "bare"),
        ("qwen3", "bare", "bare"),
        ("llama3_1", "bare", "bare"),
        ("gemma", "bare", "bare"),
        ("mistral_v13", "bare", "bare"),
        ("mistral_v3", "window", "window"),  # tools and system text move to the last user message
        ("mistral_v7", "window", "window"),
        ("deepseek_r1_distill", "bare", "full"),  # only the first tool result of a conversation opens the outputs
    ],
)
def test_the_cheapest_sufficient_level_is_chosen_and_explained(load, family, level, tool_level):
    found = load(family).properties
    assert (found.level, found.tool_level) == (level, tool_level)
    assert bool(found.level_reason) == (level != "bare")
    assert bool(found.tool_level_reason) == (tool_level != "bare")


def test_refusals_are_found(load):
    gemma = load("gemma").properties
    refused = (gemma.system, gemma.repeats_user, gemma.assistant_first, gemma.tool_role, gemma.tools)
    assert not any(refused)
    assert load("gemma3").properties.system
    assert not load("gemma3").properties.second_system
    assert not load("deepseek_r1_distill").properties.second_system  # the last one wins
    assert not load("llama3_1").properties.parallel_calls
    assert load("mistral_v3").properties.short_call_ids
    assert not load("smollm2").properties.tool_calls


def test_shapes_of_tool_calls_are_found(load):
    assert load("qwen2_5").properties.arguments == "mapping"
    assert load("llama3_1").properties.arguments == "mapping"
    r1 = load("deepseek_r1_distill").properties
    assert (r1.arguments, r1.null_call_content) == ("string", True)


def test_histories_that_change_are_found(load):
    assert load("qwen2_5").properties.append_only
    assert not load("qwen3").properties.keeps_reasoning
    r1 = load("deepseek_r1_distill").properties
    assert r1.opens_think
    assert not r1.append_only
    assert not load("mistral_v3").properties.append_only


def test_the_end_of_turn_is_the_first_stop_token(load, family):
    renderer = load(family)
    assert renderer.stop_token_ids[0] in renderer.end_of_turn
    assert list(renderer.end_of_turn) == renderer.tokenizer.encode(renderer.properties.closing)


def test_properties_can_be_shown(renderer):
    shown = dict(renderer.properties.described())
    assert shown["level"] == renderer.properties.level
    assert "\n" not in "".join(shown.values())
