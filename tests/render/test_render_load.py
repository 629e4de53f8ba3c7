"""Loading a model folder: what is read, what is refused, and what must not be imported."""

import json
import shutil
import subprocess
import sys

import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.render.config import RenderConfig
from relaxforge.render.renderer import Renderer


@pytest.fixture
def folder(model_folder, tmp_path):
    """A copy of the Qwen2.5 folder to change."""
    return shutil.copytree(model_folder("qwen2_5"), tmp_path / "model")


def load(folder, **settings):
    return Renderer.load(str(folder), RenderConfig(**settings))


def test_loading_never_imports_torch(model_folder):
    program = (
        "import sys\n"
        "from relaxforge.render.config import RenderConfig\n"
        "from relaxforge.render.renderer import Renderer\n"
        "renderer = Renderer.load(sys.argv[1], RenderConfig(agentic_tool_call_parser='qwen'))\n"
        "assert renderer.properties.level == 'bare'\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(model_folder("qwen2_5"))], check=True, timeout=60)


def test_end_tokens_come_from_template_generation_config_config_and_tokenizer(folder):
    special = load(folder).tokenizer.special
    other = load(folder).tokenizer.encode("x")[0]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [other, special["<|endoftext|>"]]}))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": other + 1}))
    expected = (special["<|im_end|>"], other, special["<|endoftext|>"], other + 1)
    assert load(folder).stop_token_ids == expected


def test_a_template_for_tools_is_used_for_requests_with_tools(folder):
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}"
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "default", "template": plain}, {"name": "tool_use", "template": "{{ tools | length }}" + plain}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    from render_dialogues import LOOKUP, ask, user

    renderer = load(folder)
    for tools, expected in (((), "[user]hello<|im_end|>"), ((LOOKUP,), "1[user]hello<|im_end|>")):
        ids = renderer.open(ask(user("hello"), tools=tools)).ids
        assert renderer.tokenizer.decode(list(ids)) == expected


def test_a_folder_without_a_chat_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="has no chat template"):
        load(folder)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for %}", "Expected"),
        ("{{ raise_exception('never') }}", "never"),
        ("nothing", "does not show a plain user message"),
        ("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", "does not show a plain user message"),
    ],
)
def test_a_chat_template_of_no_use_is_refused_in_its_own_words(folder, template, words):
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ConfigError, match=words):
        load(folder)


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_a_folder_without_a_readable_tokenizer_is_refused(folder, damage):
    if damage == "missing":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="tokenizer"):
        load(folder)


def test_a_broken_generation_config_is_refused(folder):
    (folder / "generation_config.json").write_text("[1]")
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        load(folder)


@pytest.mark.parametrize(
    ("flag", "value", "nearest"),
    [
        ("agentic_tool_call_parser", "hermse", "hermes"),
        ("agentic_tool_call_parser", "minimax", "none"),
        ("agentic_reasoning_parser", "deepsek", "deepseek"),
    ],
)
def test_an_unknown_parser_names_the_known_ones_and_the_nearest(folder, flag, value, nearest):
    name = "--" + flag.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"{name} '{value}' is unknown; known: .*none.*") as caught:
        load(folder, **{flag: value})
    if nearest != "none":
        assert f"Nearest: {nearest}" in str(caught.value)


@pytest.mark.parametrize("path", ["no_such_module:func", "json:no_such_function", "json.decoder", "json:__name__"])
def test_a_parser_path_that_leads_to_no_function_is_refused(folder, path):
    with pytest.raises(ConfigError, match="--agentic-tool-call-parser"):
        load(folder, agentic_tool_call_parser=path)


@pytest.mark.parametrize("value", ["{", "[]", "3", '"x"'])
def test_template_arguments_must_be_an_object(value):
    with pytest.raises(ConfigError, match="--apply-chat-template-kwargs must be a JSON object"):
        RenderConfig(apply_chat_template_kwargs=value)


def test_other_settings_are_checked():
    with pytest.raises(ConfigError, match="--check-render-every must be >= 0 Turns, got -1"):
        RenderConfig(check_render_every=-1)
    with pytest.raises(ConfigError, match="--agentic-special-tokens must be keep or escape"):
        RenderConfig(agentic_special_tokens="drop")
