"""Reasoning efforts of the model APIs in the words of a template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.messages import Message, ModelRequest, RetryHint, canonical_json
from relaxforge.render.config import RenderConfig
from relaxforge.render.effort import EFFORTS
from relaxforge.render.renderer import Renderer
from relaxforge.render.template import ChatTemplate

BODY = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"


def request(**kwargs):
    return ModelRequest("chat", "", (Message("user", "hello"),), RetryHint(b""), template_kwargs=canonical_json(kwargs))


def opened(renderer, **kwargs):
    seen = renderer.open(request(**kwargs))
    return renderer.tokenizer.decode(seen.ids), seen.normalised


@pytest.fixture
def written(load):
    """``written(template)``: a renderer of a template given as text."""
    tokenizer = load("qwen3").tokenizer

    def build(template):
        return Renderer(tokenizer, ChatTemplate(template, template, {}), (), RenderConfig())

    return build


@pytest.mark.parametrize(
    ("family", "switch", "efforts"),
    [
        ("qwen3", "enable_thinking", ()),
        ("glm4moe", "enable_thinking", ()),
        ("gptoss", "", ("low", "medium", "high")),
        ("qwen3_8", "enable_thinking", ("low", "medium", "xhigh")),
        ("gemma4_v5", "enable_thinking", ()),
        ("qwen2_5", "", ()),
        ("smollm2", "", ()),
    ],
)
def test_the_probe_finds_the_switch_of_a_template(load, family, switch, efforts):
    properties = load(family).properties
    assert (properties.thinking_switch, properties.efforts) == (switch, efforts)


@pytest.mark.parametrize(
    ("family", "effort", "kwargs"),
    [
        ("qwen3", "none", {"enable_thinking": False}),
        ("qwen3", "minimal", {"enable_thinking": True}),
        ("qwen3", "max", {"enable_thinking": True}),
        ("qwen3", None, {}),
        ("qwen3", "turbo", {}),
        ("gptoss", "none", {"reasoning_effort": "low"}),
        ("gptoss", "minimal", {"reasoning_effort": "low"}),
        ("gptoss", "medium", {"reasoning_effort": "medium"}),
        ("gptoss", "xhigh", {"reasoning_effort": "high"}),
        ("smollm2", "high", {}),
    ],
)
def test_an_effort_becomes_arguments_of_the_template(load, family, effort, kwargs):
    assert load(family).reasoning_kwargs(effort) == kwargs


def test_a_template_with_another_switch_and_efforts_of_its_own(written):
    renderer = written(
        "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'medium', 'max') %}"
        "{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}{{ 'on' if thinking else 'off' }}" + BODY
    )
    assert renderer.properties.thinking_switch == "thinking"
    assert renderer.properties.efforts == ("low", "medium", "max")
    assert renderer.reasoning_kwargs("high") == {"thinking": True, "reasoning_effort": "medium"}
    assert renderer.reasoning_kwargs("xhigh") == {"thinking": True, "reasoning_effort": "max"}
    assert renderer.reasoning_kwargs("none") == {"thinking": False}


def test_a_request_may_name_the_effort(load):
    qwen, gptoss = load("qwen3"), load("gptoss")
    assert opened(qwen, reasoning_effort="none") == opened(qwen, enable_thinking=False)
    assert opened(qwen, reasoning_effort="high") == opened(qwen, enable_thinking=True)
    assert "Reasoning: high" in opened(gptoss, reasoning_effort="max")[0]
    assert "Reasoning: my own" in opened(gptoss, reasoning_effort="my own")[0]
    assert opened(gptoss, reasoning_effort=None) == opened(gptoss)


def test_the_words_of_the_template_win(load):
    assert opened(load("qwen3"), reasoning_effort="high", enable_thinking=False) == opened(
        load("qwen3"), enable_thinking=False
    )


@pytest.mark.parametrize(("family", "effort"), [("smollm2", "high"), ("qwen3", "turbo"), ("gptoss", "none")])
def test_an_effort_that_the_template_cannot_follow_is_counted(load, family, effort):
    assert opened(load(family), reasoning_effort=effort)[1] == {"reasoning_switch_ignored": 1}


@given(effort=st.sampled_from(EFFORTS))
def test_no_effort_is_refused(load, effort):
    for family in ("qwen3", "gptoss", "smollm2", "glm4moe"):
        assert opened(load(family), reasoning_effort=effort)[0]
