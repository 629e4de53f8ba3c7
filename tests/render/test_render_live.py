"""Text that is told while an answer is sampled is the beginning of the text that the answer turns out to have."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relaxforge.core.messages import Tool
from relaxforge.core.turns import TokenChunk, log_probs, token_ids
from relaxforge.models import tiny
from relaxforge.render.config import RenderConfig
from relaxforge.render.parsers.registry import REASONING_PARSERS, TOOL_CALL_PARSERS
from relaxforge.render.renderer import Renderer

TOOLS = (Tool("f", None, '{"type":"object"}'),)
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
NOTHING = token_ids()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny.folder(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def renderers(folder):
    made = {}

    def of(calls, thoughts):
        if (calls, thoughts) not in made:
            config = RenderConfig(agentic_tool_call_parser=calls, agentic_reasoning_parser=thoughts)
            made[calls, thoughts] = Renderer.load(folder, config)
        return made[calls, thoughts]

    return of


def heard(renderer, text, *, tools=(), stops=(), cuts=1, prompt=""):
    """The pieces, and the message that ``parse`` makes of it all in the end."""
    ids = token_ids([*renderer.tokenizer.encode(text), renderer.stop_token_ids[0]])
    tail = token_ids(renderer.tokenizer.encode(prompt))
    pieces = []
    take = renderer.live(pieces.append, tools=tools, prompt_tail=tail, stops=stops, prompt=len(tail))
    for start in range(0, len(ids), cuts):
        part = ids[start : start + cuts]
        take(TokenChunk("r0", part, log_probs([0.0] * len(part)), 0))
    match = min((stop for stop in stops if stop in text), key=text.find, default=None)
    parsed = renderer.parse(ids, tools=tools, prompt_tail=tail, stop_match=match, salt=b"")
    return pieces, parsed.message


def told(pieces):
    return "".join(piece.text for piece in pieces)


def test_plain_text_is_told_as_it_comes(renderers):
    pieces, message = heard(renderers(None, None), "The answer is forty-two.")
    assert told(pieces) == message.text == "The answer is forty-two."
    assert len(pieces) > 3


def test_a_character_of_several_tokens_is_told_whole(renderers):
    pieces, message = heard(renderers(None, None), "né 你好 🙂 done")
    assert told(pieces) == message.text
    assert all("\ufffd" not in piece.text for piece in pieces)


def test_a_call_is_never_told(renderers):
    pieces, message = heard(renderers("qwen", None), "I look.\n" + CALL, tools=TOOLS)
    assert told(pieces) == message.text == "I look."
    assert message.tool_calls


def test_without_tools_markup_is_text(renderers):
    assert told(heard(renderers("qwen", None), "a <b> [c]")[0]) == "a <b> [c]"


@pytest.mark.parametrize(
    ("prompt", "text"), [("", "<think>\nhm\n</think>\n\nYes."), ("<think>\n", "hm\n</think>\n\nYes.")]
)
def test_reasoning_is_told_whole_before_the_text(renderers, prompt, text):
    pieces, message = heard(renderers(None, "think"), text, prompt=prompt)
    assert (told(pieces), message.text) == ("Yes.", "Yes.")
    assert {piece.reasoning for piece in pieces} == {message.reasoning} == {"hm"}


def test_what_may_still_become_reasoning_waits(renderers):
    assert heard(renderers(None, "think"), "Yes or no")[0] == []


def test_nothing_from_a_stop_string_on_is_told(renderers):
    pieces, message = heard(renderers(None, None), "one STOP two", stops=("STOP",))
    assert told(pieces) == "one"
    assert message.text == "one "


markup = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f", "arguments": {}}', "[TOOL_CALLS]", "\n", " ",
     "STOP", "ST", "é", "🙂", "<|python_tag|>", "<function=f>", "[", "{", "<", "\ufffd",
     "<\uff5ctool\u2581calls\u2581begin\uff5c>"]
)  # fmt: skip
texts = st.lists(markup | st.text("ab \n", max_size=4), max_size=8).map("".join)
calls = st.sampled_from([None, *sorted({parser.__name__: name for name, parser in TOOL_CALL_PARSERS.items()}.values())])
thoughts = st.sampled_from([None, "think", *sorted(set(REASONING_PARSERS) & {"mistral", "harmony"})])


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, calls, thoughts, st.booleans(), st.sampled_from([(), ("STOP",)]), st.integers(1, 4), st.booleans())
@example("\n\n" + CALL + "\nx", "qwen", "think", True, (), 1, True)
@example("ab</think>\ncd", "qwen", "think", False, (), 1, False)
def test_what_was_told_is_how_the_text_begins(renderers, text, calls, thoughts, offered, stops, cuts, opened):
    prompt = "<think>\n" if opened and thoughts else ""
    pieces, message = heard(
        renderers(calls, thoughts), text, tools=TOOLS if offered else (), stops=stops, cuts=cuts, prompt=prompt
    )
    assert message.text.startswith(told(pieces))
    assert all(piece.reasoning == message.reasoning for piece in pieces)
    assert all(piece.text for piece in pieces)
