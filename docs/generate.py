"""Writes what pages say about the code (`make docs`): settings.md, commands.md and the rooms in ARCHITECTURE.md.

A test fails when one of them is stale.
"""

import ast
import dataclasses
import importlib
import inspect
import itertools
import textwrap
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from relaxforge.cli.config import ROOMS
from relaxforge.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "docs" / "settings.md"
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"

COMMANDS_HEAD = """\
# Commands

Made by `make docs` from the code; do not edit. The flags of the commands that read no run file; those of `train`,
`rollout` and `doctor` are in [settings](settings.md). A switch that is on is turned off with `--no-`.
"""

HEAD = """\
# Settings

Made by `make docs` from the code; do not edit. Every setting is a flag (`--agent-timeout 60`) and a line of a run file
(`agent_timeout = 60.0`). A flag wins over the file; an unknown name is an error.

- Relative paths in a run file start at the folder of the file, relative paths in flags at the current folder.
- A run file is one flat list; the sections below only sort it. With a run file, agents run in its folder by default.
- A switch that is on is turned off with `--no-`, or with `false` in a run file.
- `None` may be said in both places: `--agent-startup-timeout None`, `agent_startup_timeout = "None"`.
- `--use-agentic-rollout` is accepted and changes nothing: every rollout here is agentic.
"""


def settings_page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(name, kind) for name, kind in ROOMS.items())


def commands_page() -> str:
    """Every flag of the commands that read no run file."""
    return COMMANDS_HEAD + "".join(_section(f"relaxforge {name}", kind) for name, kind in command_kinds().items())


def command_kinds() -> dict[str, type[Any]]:
    """The arguments of each of those commands: ``<Command>Arguments`` in the module of its name."""
    modules = {name: importlib.import_module(f"relaxforge.cli.{name}") for name in COMMANDS}
    return {name: getattr(module, f"{name.capitalize()}Arguments") for name, module in modules.items()}


def architecture_page() -> str:
    """The page as it is, with the table of rooms made anew: top room first, as in the picture above it."""
    start, end = "<!-- rooms", "<!-- /rooms -->"
    before, rest = ARCHITECTURE.read_text(encoding="utf-8").split(start, 1)
    note, after = rest.split("\n", 1)[0], rest.split(end, 1)[1]
    table = "| room | what it is for |\n| --- | --- |\n"
    table += "".join(f"| `{room}` | {charter(room)} |\n" for room in rooms())
    return f"{before}{start}{note}\n\n{table}\n{end}{after}"


def rooms() -> list[str]:
    """Every room, from the top down, as the import contract lists them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [room.strip() for layer in layers for room in layer.split("|")]


def charter(room: str) -> str:
    """The one sentence that a room says about itself."""
    source = (ROOT / "src" / "relaxforge" / room / "__init__.py").read_text(encoding="utf-8")
    return " ".join((ast.get_docstring(ast.parse(source)) or "").split())


def texts(kind: type[Any]) -> dict[str, str]:
    """The string literal under each field of a dataclass, in one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found = {}
    for field, text in itertools.pairwise(body):
        literal = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(literal, str):
            found[field.target.id] = " ".join(literal.split())
    return found


def _section(name: str, kind: type[Any]) -> str:
    said, hints, marked = texts(kind), get_type_hints(kind), get_type_hints(kind, include_extras=True)
    lines = [f"\n## {name}\n\n| flag | type | default | meaning |\n| --- | --- | --- | --- |\n"]
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            lines += _section("", hints[field.name]).splitlines(keepends=True)[5:]
            continue
        positional = get_origin(marked[field.name]) is Annotated
        flag = f"`{field.name.upper()}`" if positional else f"`--{field.name.replace('_', '-')}`"
        cells = (flag, _type(hints[field.name]), _default(field.default), said.get(field.name, ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(lines)


def _type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(hint))
    if get_origin(hint) is tuple:
        return "words"
    names = {"int": "whole number", "float": "number", "str": "text", "bool": "switch", "NoneType": "None"}
    kinds = get_args(hint) or (hint,)
    return " or ".join(names.get(kind.__name__, kind.__name__) for kind in kinds)


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`" if value not in ("", ()) else "empty"


if __name__ == "__main__":
    COMMANDS_PAGE.write_text(commands_page(), encoding="utf-8")
    SETTINGS.write_text(settings_page(), encoding="utf-8")
    ARCHITECTURE.write_text(architecture_page(), encoding="utf-8")
