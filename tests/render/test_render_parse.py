"""Sampled ids as messages: any ids give one, and what is not understood stays text."""

import json

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from render_dialogues import LOOKUP

from relaxforge.core.turns import token_ids

PARSERS = {"agentic_tool_call_parser": "qwen", "agentic_reasoning_parser": "think"}


@pytest.fixture
def qwen(load):
    return load("qwen3", **PARSERS)


def read(renderer, text, *, tools=(LOOKUP,), prompt="<|im_start|>assistant\n", stop_match=None, end=True, salt=b"salt"):
    ids = renderer.tokenizer.encode(text)
    return renderer.parse(
        token_ids([*ids, renderer.stop_token_ids[0]] if end else ids),
        tools=tools,
        prompt_tail=token_ids(renderer.tokenizer.encode(prompt)),
        stop_match=stop_match,
        salt=salt,
    )


def call(name="lookup", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "prompt", "reasoning", "answer"),
    [
        ("plain", "", "", "plain"),
        ("<think>\nhm\n</think>\n\nplain", "", "hm", "plain"),
        ("hm\n</think>\n\nplain", "<think>\n", "hm", "plain"),
        ("<think>\nhm\n</think>\nplain", "<think>", "hm", "plain"),
        ("hm\n</think>\nplain", "", "hm", "plain"),
        ("hm</think>", "", "hm", ""),
        ("the tag </think> closes", "", "", "the tag </think> closes"),
        ("hm</think>plain", "<think>\n", "hm", "plain"),
        ("<think>\nnever closed", "", "never closed", ""),
        ("never closed", "assistant\n<think>\n", "never closed", ""),
        ("plain", "<think>\n\n</think>\n\n", "", "plain"),
        ("<think>\n\n</think>\n\nplain", "", "", "plain"),
        ("  plain \n", "", "", "  plain \n"),
        ("<think>a</think>b</think>c", "", "a", "b</think>c"),
        ("first <think>hm</think>\nthen", "", "", "first <think>hm</think>\nthen"),
        ("\n<think>hm</think>\n\n  then ", "", "hm", "  then "),
        ("", "<think>\n", "", ""),
        ("it opens", "what is <think>?<|im_end|>\n<|im_start|>assistant\n", "", "it opens"),
    ],
)
def test_reasoning_is_split_from_the_answer(qwen, text, prompt, reasoning, answer):
    message = read(qwen, text, prompt=prompt).message
    assert (message.reasoning, message.content) == (reasoning, answer)


@pytest.mark.parametrize(
    ("text", "content", "arguments"),
    [
        (call(city="Paris"), "", ['{"city":"Paris"}']),
        ("let me see\n" + call(city="Paris"), "let me see", ['{"city":"Paris"}']),
        (call(city="Paris") + "\n" + call(city="Rome"), "", ['{"city":"Paris"}', '{"city":"Rome"}']),
        (call(b=1, a=[2.0, {"x": None}]), "", ['{"a":[2,{"x":null}],"b":1}']),
        (call(), "", ["{}"]),
        (call(text="</tool_call> inside <tool_call>"), "", ['{"text":"</tool_call> inside <tool_call>"}']),
        (call(text="<think> and </think>"), "", ['{"text":"<think> and </think>"}']),
        (call(a=1) + "\n\nthat is all ", "that is all ", ['{"a":1}']),
        ("a\n" + call(a=1) + "\nand\n" + call(a=2), "aand", ['{"a":1}', '{"a":2}']),
        ('<tool_call>{"name":"lookup","arguments":{"a":1}}</tool_call>', "", ['{"a":1}']),
        ('<tool_call>\n{"arguments": {"a": 1, "a": 2}, "name": "lookup"}\n</tool_call>', "", ['{"a":2}']),
        ('<tool_call>{"name":"lookup","arguments":{"a":"\\ud800"}}</tool_call>', "", ['{"a":"\ufffd"}']),
        ("<think>\nhm\n</think>\n\n" + call(a=1), "", ['{"a":1}']),
    ],
)
def test_tool_calls_are_read(qwen, text, content, arguments):
    parsed = read(qwen, text)
    assert parsed.malformed is None
    assert parsed.message.content == content
    assert [(made.name, made.arguments) for made in parsed.message.tool_calls] == [("lookup", a) for a in arguments]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<tool_call>\n{"name": "lookup", "argum', "tool_call_unclosed"),
        ('<tool_call>\n{"name": "lookup", "arguments": {}}', "tool_call_unclosed"),
        ("<tool_call>", "tool_call_unclosed"),
        ("<tool_call>\nlookup(city)\n</tool_call>", "tool_call_invalid_json"),
        ("<tool_call></tool_call>", "tool_call_invalid_json"),
        ('<tool_call>{"name": "lookup", "arguments": {}} extra</tool_call>', "tool_call_invalid_json"),
        ('<tool_call>["lookup"]</tool_call>', "tool_call_not_an_object"),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', "tool_call_name_not_a_string"),
        ('<tool_call>{"arguments": {}}</tool_call>', "tool_call_name_not_a_string"),
        ('<tool_call>{"name": "lookup"}</tool_call>', "tool_call_arguments_not_an_object"),
        ('<tool_call>{"name": "lookup", "arguments": "{}"}</tool_call>', "tool_call_arguments_not_an_object"),
        ('<tool_call>{"name": "lookup", "arguments": {"a": NaN}}</tool_call>', "tool_call_invalid_json"),
        ('<tool_call>{"name": "lookup", "arguments": {"a": 1e999}}</tool_call>', "tool_call_invalid_json"),
        ('<tool_call>{"name": "lookup", "arguments": {"a": ' + "[" * 3000 + "}", "tool_call_unclosed"),
        (
            '<tool_call>{"name": "lookup", "arguments": {"a": ' + "[" * 600 + "]" * 600 + "}}</tool_call>",
            "tool_call_invalid_json",
        ),
        ('<tool_call>{"name": "lookup", "arguments": {"a": ' + "9" * 5000 + "}}</tool_call>", "tool_call_invalid_json"),
        (call(a=1) + '<tool_call>{"name": "lo', "tool_call_unclosed"),
    ],
)
def test_a_malformed_call_leaves_plain_text_and_a_reason(qwen, text, reason):
    parsed = read(qwen, text)
    assert parsed.malformed == reason
    assert parsed.message.content == text
    assert parsed.message.tool_calls == ()


def test_without_offered_tools_nothing_is_a_call(qwen):
    parsed = read(qwen, call(a=1), tools=())
    assert (parsed.message.content, parsed.message.tool_calls, parsed.malformed) == (call(a=1), (), None)


@pytest.mark.parametrize("name", [None, "none"])
def test_without_parsers_everything_is_text(load, name):
    renderer = load("qwen3", agentic_tool_call_parser=name, agentic_reasoning_parser=name)
    text = "<think>\nhm\n</think>\n\n" + call(a=1)
    message = read(renderer, text).message
    assert (message.content, message.reasoning, message.tool_calls) == (text, "", ())


@pytest.mark.parametrize(
    ("tool_calls", "reasoning"), [("hermes", "qwen3"), ("qwen25", "deepseek-r1"), ("Qwen2.5", "deepseek_r1")]
)
def test_names_of_vllm_and_sglang_are_known(load, tool_calls, reasoning):
    renderer = load("qwen3", agentic_tool_call_parser=tool_calls, agentic_reasoning_parser=reasoning)
    message = read(renderer, "<think>hm</think>" + call(a=1)).message
    assert (message.reasoning, message.tool_calls[0].name) == ("hm", "lookup")


def test_end_tokens_are_not_text_but_other_control_tokens_are(qwen):
    assert read(qwen, "a<|im_start|>b").message.content == "a<|im_start|>b"
    assert read(qwen, "<|im_end|><|im_end|>").message.content == ""
    assert read(qwen, "", end=False).message.content == ""


def test_text_is_cut_at_the_stop_string(qwen):
    assert read(qwen, "one STOP two", stop_match="STOP", end=False).message.content == "one "
    assert read(qwen, "one two", stop_match="STOP").message.content == "one two"


def test_call_ids_follow_from_ids_salt_and_index(qwen):
    text = call(a=1) + "\n" + call(a=1)
    first, second = (made.id for made in read(qwen, text).message.tool_calls)
    assert first != second
    assert first.startswith("call_")
    assert len(first) == 29
    assert [made.id for made in read(qwen, text).message.tool_calls] == [first, second]
    assert read(qwen, text, salt=b"other").message.tool_calls[0].id != first
    assert read(qwen, text, end=False).message.tool_calls[0].id != first


def shouted(text, tools):
    assert tools == (LOOKUP,)
    return text.lower(), [("lookup", {"b": 2.0, "a": 1}), ("lookup", '{"z": 1, "a": 2}'), ("lookup", "[1]")]


def halves(text, opened):
    return text[: len(text) // 2], text[len(text) // 2 :]


def broken(text, second):
    raise KeyError(text)


def nonsense(text, second):
    return 7


def test_parsers_of_one_s_own(load):
    renderer = load(
        "qwen3",
        agentic_tool_call_parser=f"{__name__}:shouted",
        agentic_reasoning_parser=f"{__name__}.halves",
    )
    message = read(renderer, "abCD").message
    assert (message.reasoning, message.content) == ("ab", "cd")
    assert [made.arguments for made in message.tool_calls] == ['{"a":1,"b":2}', '{"a":2,"z":1}', "[1]"]


@pytest.mark.parametrize("function", ["broken", "nonsense"])
@pytest.mark.parametrize("flag", ["agentic_tool_call_parser", "agentic_reasoning_parser"])
def test_a_parser_of_one_s_own_that_fails_leaves_text_and_a_reason(load, flag, function):
    with structlog.testing.capture_logs() as logged:
        parsed = read(load("qwen3", **{flag: f"{__name__}:{function}"}), "plain text")
    assert parsed.message.content == "plain text"
    assert parsed.malformed in ("parser_failed_KeyError", "parser_failed_TypeError")
    assert [line["event"] for line in logged] == ["parser_failed"]


fragments = st.lists(
    st.one_of(
        st.text(max_size=6),
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f", "arguments": {}}', "\n"]),
    ),
    max_size=8,
).map("".join)


@given(text=fragments, opened=st.booleans())
def test_any_text_gives_a_message(load, text, opened):
    parsed = read(load("qwen3", **PARSERS), text, prompt="<think>\n" if opened else "")
    assert parsed.message.role == "assistant"
    if parsed.malformed:
        assert parsed.message.tool_calls == ()


@given(st.lists(st.integers(0, 500), max_size=20))
def test_any_ids_give_a_message(load, ids):
    renderer = load("qwen3", **PARSERS)
    parsed = renderer.parse(token_ids(ids), tools=(LOOKUP,), prompt_tail=token_ids(ids), stop_match=None, salt=b"")
    assert parsed.message.role == "assistant"


@given(fragments)
def test_without_a_parser_no_character_is_lost(load, text):
    renderer = load("qwen3")
    visible = renderer.tokenizer.decode(renderer.tokenizer.encode(text))
    assert read(renderer, text).message.content == visible
