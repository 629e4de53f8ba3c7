"""Flags into a dataclass: tyro does the work, its errors become one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import tyro

from relaxforge.core.errors import ConfigError

T = TypeVar("T")

HELP_WIDTH = 100
LEAST_WIDTH = 40
"""Narrower than this, laying out boxes never ends."""
_ONE_LINE = 10_000


def parse_flags(kind: type[T], argv: Sequence[str], *, prog: str, default: T | None = None) -> T:
    """A dataclass from flags; ``default`` holds the values of flags that are not given.

    Errors: ``ConfigError`` in one line. ``--help`` prints and exits.
    """
    if "--help" in argv or "-h" in argv:
        with _columns(max(LEAST_WIDTH, min(HELP_WIDTH, shutil.get_terminal_size().columns))):
            return _parsed(kind, argv, prog, default)
    _check_names(kind, argv)
    # Without a terminal tyro writes plain text, one line per sentence where lines are long enough.
    said = io.StringIO()
    try:
        with _columns(_ONE_LINE), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return _parsed(kind, argv, prog, default)
    except SystemExit:
        raise ConfigError(_explained(_message(said.getvalue()), argv)) from None


def _parsed(kind: type[T], argv: Sequence[str], prog: str, default: T | None) -> T:
    return tyro.cli(
        kind,
        prog=prog,
        args=list(argv),
        config=(tyro.conf.OmitArgPrefixes,),
        default=tyro.MISSING_NONPROP if default is None else default,
    )


def unknown(name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a name that no setting has, with the nearest one that exists."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`relaxforge train --help` lists all"
    return ConfigError(f"{where}: unknown setting {name}; {hint}")


def flag_names(kind: type[Any]) -> list[str]:
    """Every flag of a dataclass and of the dataclasses in its fields, for example ``--agent-timeout``."""
    names: list[str] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            names += flag_names(hint)  # type: ignore[arg-type]
        elif get_origin(hint) is not Annotated:  # positional or hidden
            names.append(f"--{name.replace('_', '-')}")
    return names


def _check_names(kind: type[Any], argv: Sequence[str]) -> None:
    # Before tyro sees them: a misspelt name is the commonest mistake, and run files give the same answer to it.
    known = flag_names(kind)
    for word in argv:
        name = word.split("=")[0]
        if word.startswith("--") and name.replace("--no-", "--", 1) not in known and name not in known:
            raise unknown(name, known, "command line")


@contextlib.contextmanager
def _columns(width: int) -> Iterator[None]:
    """Let tyro lay out its text for ``width`` columns; COLUMNS is where it asks."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


_UNUSED = "Unrecognized options: "
_NOT_ONE_OF = re.compile(
    r"Error parsing (--\S+): no type matching \{None\}\|(INT|FLOAT) could be .* from \[(.*?)\]\. Got", re.DOTALL
)
_KINDS = {"INT": "a whole number or None", "FLOAT": "a number or None"}


def _explained(message: str, argv: Sequence[str]) -> str:
    """tyro's sentence, put in our words where it names the symptom and not the mistake."""
    if found := _NOT_ONE_OF.match(message):
        return f"{found[1]} must be {_KINDS[found[2]]}, got {found[3]}"
    if not message.startswith(_UNUSED):
        return message
    word = message.removeprefix(_UNUSED).split(",")[0]
    if word.endswith(".toml"):
        return f"{word}: the run file comes first, before all flags"
    if flag := _flag_before(word, argv):
        return f"{flag} takes no value {word}; a switch is turned on by its name alone, and off by --no- before it"
    return f"{word}: unknown flag" if word.startswith("-") else f"{word}: no flag takes this value"


def _flag_before(word: str, argv: Sequence[str]) -> str | None:
    """The flag that was given ``word`` as its value, as ``--flag word`` or ``--flag=word``."""
    for before, given in zip(("", *argv), argv, strict=False):
        if given == word and before.startswith("--") and not word.startswith("-"):
            return before
        if given.startswith("--") and given.partition("=")[2] == word:
            return given.partition("=")[0]
    return None


def _message(text: str) -> str:
    """What tyro says between its title and its hints, which rules of dashes set off, as one line."""
    blocks = re.split(r"^\s*-+\s*$", text, flags=re.MULTILINE)
    return " ".join((blocks[1] if len(blocks) > 1 else text).split())
