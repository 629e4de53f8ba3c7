"""JSON as every door reads it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core import strict_json

surrogates = st.text(st.characters() | st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=["Cs"]))
pieces = st.lists(
    st.sampled_from([r"\ud800", r"\uDFFF", r"\ud83d\ude00", r"\\", r"\\ud800", r"\n", r"\"", "u", "d800", "x"])
)


def repaired(text):
    """The reference: one replacement per code point that is no character."""
    return "".join("\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in text)


@given(surrogates)
def test_lone_surrogates_are_replaced(text):
    raw = json.dumps(text)
    assert strict_json.loads(raw) == repaired(json.loads(raw))


@given(st.text())
def test_other_text_stays(text):
    assert strict_json.loads(json.dumps(text, ensure_ascii=False)) == text


@given(pieces)
def test_escapes_are_told_apart_from_their_spelling(chosen):
    raw = '"' + "".join(chosen) + '"'
    assert strict_json.loads(raw) == repaired(json.loads(raw))


@given(pieces)
def test_replacements_can_be_counted(chosen):
    raw = ('"' + "".join(chosen) + '"').encode()
    lone = sum(0xD800 <= ord(character) <= 0xDFFF for character in json.loads(raw))
    assert strict_json.replace_lone_surrogates(raw).count(strict_json.REPLACEMENT) == lone


def test_the_last_of_equal_keys_counts():
    assert strict_json.loads('{"a": 1, "a": 2}') == {"a": 2}


def test_integers_are_exact():
    assert strict_json.loads("123456789012345678901234567890") == 123456789012345678901234567890


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "-Infinity", "1e999", "", "{", "[1] 2", "9" * 5000, "[" * 100_000]
)
def test_what_cannot_be_kept_exactly_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        strict_json.loads(text)


@pytest.mark.parametrize(("levels", "fine"), [(1, True), (200, True), (201, False), (900, False)])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_limited(levels, fine, opening):
    closing = "]" if opening == "[" else "}"
    text = opening * (levels - 1) + ("[]" if opening == "[" else "{}") + closing * (levels - 1)
    if fine:
        strict_json.loads(text)
    else:
        with pytest.raises(ValueError, match="200 levels"):
            strict_json.loads(text)
