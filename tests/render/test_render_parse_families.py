"""Parsers of all families: any text gives a reading, and what a family's format says is read back."""

import json
import re
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_dialogues import LOOKUP

from relaxforge.core.messages import Tool, canonical_json
from relaxforge.render.parsers.deepseek import BAR, CALL, CALL_END, SECTION, SECTION_END, SEPARATOR
from relaxforge.render.parsers.registry import REASONING_PARSERS, TOOL_CALL_PARSERS, reasoning_parser, tool_call_parser
from relaxforge.render.parsers.schema import typed

EVERY_TOOL_CALL_PARSER = sorted({parser.__name__: parser for parser in TOOL_CALL_PARSERS.values()})
EVERY_REASONING_PARSER = sorted({parser.__name__: parser for parser in REASONING_PARSERS.values()})
TOOL_CALLS = {parser.__name__: parser for parser in TOOL_CALL_PARSERS.values()}
REASONING = {parser.__name__: parser for parser in REASONING_PARSERS.values()}

# Every kind of argument, so that formats without quotes must look at the schema.
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "object": {"type": "object"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
ACT = Tool("act", "do something", canonical_json(SCHEMA))


def hermes(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def raw(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def qwen3_coder(name, arguments):
    inside = "".join(f"<parameter={key}>\n{raw(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def glm(name, arguments):
    inside = "".join(f"<arg_key>{key}</arg_key><arg_value>{raw(value)}</arg_value>" for key, value in arguments.items())
    return f"<tool_call>{name}{inside}</tool_call>"


def deepseek_tokens(name, arguments):
    return f"{SECTION}{CALL}{name}{SEPARATOR}{json.dumps(arguments)}{CALL_END}{SECTION_END}"


def deepseek_tags(name, arguments):
    tag = f"{BAR}DSML{BAR}"
    inside = "".join(
        f'<{tag}parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">{raw(value)}'
        f"</{tag}parameter>\n"
        for key, value in arguments.items()
    )
    return f'<{tag}tool_calls>\n<{tag}invoke name="{name}">\n{inside}</{tag}invoke>\n</{tag}tool_calls>'


def kimi(name, arguments):
    call = f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{json.dumps(arguments)}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def kimi_k3(name, arguments):
    inside = "".join(
        f'<|open|>argument key="{escape(key)}" type="{"string" if isinstance(value, str) else "other"}"<|sep|>'
        f"{raw(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{inside}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def mistral(name, arguments):
    return f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}"


def llama3(name, arguments):
    return json.dumps({"name": name, "parameters": arguments})


def harmony(name, arguments):
    return f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{json.dumps(arguments)}<|call|>"


def gemma4(name, arguments):
    return f"<|tool_call>call:{name}{notation(arguments)}<tool_call|>"


def notation(value):
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{notation(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(notation, value)) + "]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


# writer -> the parser that reads what it writes
WRITERS = {
    hermes: "hermes",
    qwen3_coder: "qwen3_coder",
    glm: "glm",
    deepseek_tokens: "deepseek",
    deepseek_tags: "deepseek",
    kimi: "kimi",
    kimi_k3: "kimi_k3",
    mistral: "mistral",
    llama3: "llama3",
    harmony: "harmony",
    gemma4: "gemma4",
}
MARKERS = sorted(
    {
        part
        for write in WRITERS
        for part in re.findall(r"</?[^<>]*>|\[[A-Z_]+\]", write("act", {"text": "x", "count": 1}) + "[THINK][/THINK]")
    }
    | {"<think>", "</think>", "<|channel|>analysis", "<|message|>", "<|end|>", "<|channel>thought", "<channel|>"}
    | {"<|python_tag|>", '{"name": "act", "parameters": ', "{", "}", "[", "]", ",", ":", '"', '<|"|>', "call:act", "\n"}
)
broken = st.lists(st.one_of(st.sampled_from(MARKERS), st.text(max_size=5)), max_size=12).map("".join)

# Text without the marks of any format; white space at its ends is a format's own business.
words = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="<>[]{}" + BAR), max_size=12).map(
    str.strip
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": words,
        "count": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "list": st.lists(plain_json, max_size=3),
        "object": st.dictionaries(st.sampled_from(["a", "b"]), plain_json, max_size=2),
        "maybe": words.filter(lambda text: text not in ("null", "None")) | st.none(),
    },
)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@given(given_arguments=arguments)
def test_a_call_that_follows_the_format_is_read_back(write, given_arguments):
    reading = TOOL_CALLS[WRITERS[write]](write("act", given_arguments), (ACT,))
    assert reading.malformed is None
    assert reading.calls == (("act", canonical_json(given_arguments)),)
    assert reading.text == ""


@pytest.mark.parametrize("write", [write for write in WRITERS if write is not llama3], ids=lambda write: write.__name__)
@given(before=words, given_arguments=arguments)
def test_text_before_calls_stays_and_calls_keep_their_order(write, before, given_arguments):
    text = before + "\n" + write("act", given_arguments) + write("act", {})
    reading = TOOL_CALLS[WRITERS[write]](text, (ACT,))
    assert reading.malformed is None
    assert reading.calls == (("act", canonical_json(given_arguments)), ("act", "{}"))
    assert reading.text == before


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@given(given_arguments=arguments, data=st.data())
def test_a_call_that_is_cut_is_plain_text_or_was_complete(write, given_arguments, data):
    whole = write("act", given_arguments)
    text = whole[: data.draw(st.integers(0, len(whole) - 1))]
    reading = TOOL_CALLS[WRITERS[write]](text, (ACT,))
    assert reading.calls in ((), (("act", canonical_json(given_arguments)),))
    assert reading.calls or reading.text == text


@pytest.mark.parametrize("parser", EVERY_TOOL_CALL_PARSER)
@given(text=broken)
def test_any_text_gives_a_reading(parser, text):
    reading = TOOL_CALLS[parser](text, (LOOKUP, ACT))
    if reading.malformed:
        assert (reading.calls, reading.text) == ((), text)
    for name, written in reading.calls:
        assert name
        assert canonical_json(json.loads(written)) == written


@pytest.mark.parametrize("parser", EVERY_REASONING_PARSER)
@given(text=broken, opened=st.booleans())
def test_any_text_is_split(parser, text, opened):
    reasoning, answer = REASONING[parser](text, opened)
    assert len(reasoning) + len(answer) <= len(text)


@pytest.mark.parametrize("parser", EVERY_TOOL_CALL_PARSER)
@given(text=words)
def test_text_without_marks_of_a_format_is_the_answer(parser, text):
    assert TOOL_CALLS[parser](text, (ACT,)).text == text


@pytest.mark.parametrize("parser", EVERY_TOOL_CALL_PARSER)
@pytest.mark.parametrize("deep", ['{"a":' * 5000, "[" * 5000, "{a:" * 5000], ids=["objects", "lists", "notation"])
def test_deep_nesting_is_plain_text(parser, deep):
    openings = {
        "gemma4": "<|tool_call>call:act",
        "mistral": "[TOOL_CALLS]act[ARGS]",
        "llama3": '{"name": "act", "parameters": ',
        "deepseek": f"{SECTION}{CALL}act{SEPARATOR}",
        "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>act:0<|tool_call_argument_begin|>",
        "harmony": " to=functions.act<|channel|>commentary<|message|>",
        "hermes": "<tool_call>",
    }
    text = openings.get(parser, "<tool_call>") + deep
    reading = TOOL_CALLS[parser](text, (ACT,))
    assert (reading.calls, reading.text) == ((), text)


@pytest.mark.parametrize(
    ("text", "kinds", "value"),
    [
        ("5", {"number"}, 5),
        ("5", {"string"}, "5"),
        ("5", {"string", "number"}, 5),
        ("5", set(), 5),
        ("null", {"string", "null"}, None),
        ("null", {"string"}, "null"),
        ("True", {"boolean"}, True),
        ("None", {"string", "null"}, None),
        ("True", {"string"}, "True"),
        ("True", set(), "True"),
        ('{"a": 1}', {"string", "null"}, '{"a": 1}'),
        ('{"a": 1}', {"object"}, {"a": 1}),
        ("many", {"number"}, "many"),
        ('"quoted"', {"string"}, '"quoted"'),
        ('"quoted"', set(), '"quoted"'),
        ("NaN", {"number"}, "NaN"),
        ("9" * 5000, {"number"}, "9" * 5000),
        ("", {"string"}, ""),
    ],
)
def test_values_without_quotes_follow_the_schema(text, kinds, value):
    assert typed(text, frozenset(kinds)) == value


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["integer", "null"]}, "42", 42),
        ({"oneOf": [{"type": "array"}, {"type": "string"}]}, "[1]", [1]),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"$ref": "#/$defs/Place"}, '{"city": "Paris"}', {"city": "Paris"}),
        (True, "1", 1),
    ],
)
def test_a_schema_says_the_type_in_many_ways(schema, text, value):
    tool = Tool("act", "", canonical_json({"properties": {"value": schema}}))
    reading = tool_call_parser("glm")(glm("act", {"value": text}), (tool,))
    assert reading.calls == (("act", canonical_json({"value": value})),)


@pytest.mark.parametrize(
    "parameters", ["{}", "[]", '{"properties":[]}', '{"properties":{"value":{"type":7,"anyOf":3}}}']
)
def test_a_schema_that_says_nothing_is_no_obstacle(parameters):
    reading = tool_call_parser("qwen3-coder")(qwen3_coder("act", {"value": 1}), (Tool("act", "", parameters),))
    assert reading.calls == (("act", '{"value":1}'),)


def test_harmony_answers_are_taken_apart_even_when_no_tool_is_offered():
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>"
    assert reasoning_parser("gpt-oss")(text, False) == ("hm", "yes")


def test_json_that_is_no_call_is_an_answer():
    text = '{"name": "Ada", "age": 36}'
    reading = tool_call_parser("llama3")(text, (ACT,))
    assert (reading.text, reading.calls, reading.malformed) == (text, (), None)


def test_several_llama_calls_are_separated():
    text = llama3("act", {"count": 1}) + "; " + llama3("act", {"count": 2})
    assert [arguments for _, arguments in tool_call_parser("llama3_json")(text, (ACT,)).calls] == [
        '{"count":1}',
        '{"count":2}',
    ]


def test_more_than_arguments_in_a_harmony_call_is_no_call():
    text = ' to=functions.act<|channel|>commentary<|message|>{"count": 1} and more<|call|>'
    assert tool_call_parser("gpt-oss")(text, (ACT,)).malformed == "tool_call_invalid_json"
