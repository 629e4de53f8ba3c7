"""``auto`` reads the chat template; what it chose is a property that doctor prints."""

import pytest
from render_dialogues import LOOKUP

from relaxforge.core.messages import Message, ToolCall
from relaxforge.core.turns import token_ids
from relaxforge.render.parsers.auto import reasoning_parser_of, tool_call_parser_of
from relaxforge.render.parsers.registry import reasoning_parser, tool_call_parser
from relaxforge.render.shape import chat_messages
from relaxforge.render.window import common_start

QUESTION = Message("user", "what is the weather?")
CHOSEN = {
    "qwen2_5": ("qwen", "none"),
    "qwen3": ("qwen", "think"),
    "qwen3_5_think": ("qwen3_coder", "think"),
    "nemotron_3_nano": ("qwen3_coder", "think"),
    "llama3_1": ("llama3", "none"),
    "llama3_2": ("llama3", "none"),
    "mistral_v3": ("mistral", "none"),
    "mistral_v13": ("mistral", "none"),
    "deepseekv3": ("deepseek", "think"),
    "deepseek_r1_distill": ("deepseek", "think"),
    "gemma4_v5": ("gemma4", "gemma4"),
    "glm4moe": ("glm", "think"),
    "gptoss": ("harmony", "harmony"),
    "gemma3": ("none", "none"),
    "smollm2": ("none", "none"),
}
SPELLED = [
    ("<|tool_calls_section_begin|> <think></think>", "kimi", "think"),
    ("<|open|>think<|sep|>", "kimi_k3", "kimi_k3"),
    ("<|tool_call>call:x <|channel>thought", "gemma4", "gemma4"),
    ("[TOOL_CALLS] [THINK]", "mistral", "mistral"),
    ("<\uff5cDSML\uff5ctool_calls>", "deepseek", "none"),
    ("", "none", "none"),
]


@pytest.mark.parametrize("family", CHOSEN)
def test_auto_chooses_by_the_template_and_says_so(load, family):
    renderer = load(family, agentic_tool_call_parser="auto", agentic_reasoning_parser="auto")
    said = (renderer.properties.tool_call_parser, renderer.properties.reasoning_parser)
    assert said == tuple(f"{name} (auto)" for name in CHOSEN[family])


@pytest.mark.parametrize(("template", "calls", "reasoning"), SPELLED)
def test_control_tokens_of_a_template_tell_the_families_apart(template, calls, reasoning):
    assert (tool_call_parser_of(template), reasoning_parser_of(template)) == (calls, reasoning)
    tool_call_parser(calls)
    reasoning_parser(reasoning)


def test_a_named_parser_is_said_as_named(load):
    named = load("qwen3", agentic_tool_call_parser="hermes", agentic_reasoning_parser="none").properties
    assert (named.tool_call_parser, named.reasoning_parser) == ("hermes", "none")
    assert load("qwen3").properties.tool_call_parser == "none"
    assert ("reasoning_parser", "none") in named.described()


def test_what_auto_chose_reads_answers(load):
    renderer = load("glm4moe", agentic_tool_call_parser="auto", agentic_reasoning_parser="auto")
    text = "<think>hm</think>\n<tool_call>lookup\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
    ids = token_ids(renderer.tokenizer.encode(text))
    parsed = renderer.parse(ids, tools=(LOOKUP,), prompt_tail=token_ids([]), stop_match=None, salt=b"")
    assert parsed.message.reasoning == "hm"
    assert [(made.name, made.arguments) for made in parsed.message.tool_calls] == [("lookup", '{"city":"Paris"}')]


ROUND_TRIPS = ["qwen2_5", "qwen3", "qwen3_5_think", "nemotron_3_nano", "mistral_v3", "mistral_v7", "mistral_v13"]
ROUND_TRIPS += ["deepseekv3", "gemma4_v5", "qwen3_8", "glm4moe", "gptoss", "llama3_1", "llama3_2"]


def written(renderer, answer):
    """``answer`` as the template shows it in a history: without what opens it and without its end token."""
    template = renderer._window.template
    closed, opened, whole = (
        template.render(
            chat_messages(messages, renderer.properties, renderer._control, {}), (LOOKUP,), {}, prompt=prompt
        )
        for messages, prompt in (([QUESTION], False), ([QUESTION], True), ([QUESTION, answer], False))
    )
    assert whole.startswith(closed)
    text = whole[len(common_start(opened, whole, renderer._control)) :].rstrip()
    ends = [renderer.token_text(end) for end in renderer.stop_token_ids]
    return next((text.removesuffix(end) for end in ends if text.endswith(end)), text)


@pytest.mark.parametrize("family", ROUND_TRIPS)
def test_a_call_as_the_template_writes_it_is_read_back(load, family):
    renderer = load(family, agentic_tool_call_parser="auto", agentic_reasoning_parser="auto")
    arguments = '{"city":"Paris, \\"the\\" city","days":2}'
    answer = Message("assistant", tool_calls=(ToolCall("call00001", "lookup", arguments),))
    ids = token_ids(renderer.tokenizer.encode(written(renderer, answer)))
    parsed = renderer.parse(ids, tools=(LOOKUP,), prompt_tail=token_ids([]), stop_match=None, salt=b"")
    assert parsed.malformed is None
    assert [(call.name, call.arguments) for call in parsed.message.tool_calls] == [("lookup", arguments)]
