"""What the pages say is what the code does."""

import ast
import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from relaxforge.cli.config import ROOMS
from relaxforge.core.sessions import FailureCategory
from relaxforge.engine.scripted.rules import Rule, read_rules

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "relaxforge"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
METRIC = re.compile(r"(rollout|train|perf|eval|tokens|passrate|num_turn)(/[a-z_@^]+)+/?")


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(*parts):
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def trees(*folders):
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def test_pages_made_from_the_code_are_fresh(generate):
    assert text_of("docs", "settings.md") == generate.settings_page(), "run: make docs"
    assert text_of("docs", "commands.md") == generate.commands_page(), "run: make docs"
    assert text_of("ARCHITECTURE.md") == generate.architecture_page(), "run: make docs"


@pytest.mark.parametrize(("room", "kind"), ROOMS.items())
def test_every_setting_is_explained(generate, room, kind):
    texts = generate.texts(kind)
    for field in dataclasses.fields(kind):
        text = texts.get(field.name, "")
        assert text, f"{room}.{field.name} has no text under it"
        if field.default is None:
            assert "None" in text, f"{room}.{field.name} does not say what None means"


def test_every_flag_of_a_command_is_explained(generate):
    kinds = dict(generate.command_kinds())
    for command, kind in list(kinds.items()):
        hints = get_type_hints(kind)
        kinds |= {f"{command} {name}": hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    assert len(kinds) > len(generate.COMMANDS)
    for command, kind in kinds.items():
        texts, hints = generate.texts(kind), get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if not dataclasses.is_dataclass(hints[field.name]):
                text = texts.get(field.name, "")
                assert text, f"{command}: {field.name} has no text under it"
                assert field.default is not None or "None" in text, f"{command}: {field.name}: what does None mean?"


def test_every_event_is_explained():
    page = text_of("docs", "events.md")
    calls = [node for tree in trees(".") for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        function = call.func
        logs = isinstance(function, ast.Attribute) and function.attr in (
            "debug",
            "info",
            "warning",
            "error",
            "exception",
        )
        if logs and isinstance(function.value, ast.Name) and function.value.id in ("log", "_log"):
            assert isinstance(call.args[0], ast.Constant), "the name of an event is a constant"
            assert f"`{call.args[0].value}`" in page, f"docs/events.md does not explain {call.args[0].value}"


def test_every_field_of_the_dump_is_explained():
    page = text_of("docs", "run-directory.md")
    tree = ast.parse((PACKAGE / "rollout" / "record.py").read_text(encoding="utf-8"))
    keys = {key.value for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys if key is not None}
    assert len(keys) > 40
    assert not {key for key in keys if not re.search(rf"\b{key}\b", page)}


def test_every_failure_category_is_explained():
    page = text_of("docs", "run-directory.md")
    assert [category for category in FailureCategory if category not in page] == []


def test_every_metric_is_explained():
    page = text_of("docs", "metrics.md")
    for tree in trees("runs", "train"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and METRIC.fullmatch(node.value):
                assert node.value in page, f"docs/metrics.md does not explain {node.value}"


def test_every_field_of_a_scripted_rule_is_explained(tmp_path):
    page = text_of("docs", "scripted-engine.md")
    fields = {field.name for field in dataclasses.fields(Rule)} - {"where"} | {"tokens"}
    assert [field for field in fields if f"| `{field}` |" not in page] == []
    example = tmp_path / "replies.jsonl"
    example.write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    assert len(read_rules(str(example))) == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
