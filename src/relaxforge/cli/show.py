"""``relaxforge show RUN_DIR [SESSION]``: what happened, from the dump alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxforge.cli.conversation import print_conversation, visible
from relaxforge.cli.dump import SessionRow, find_session, sessions
from relaxforge.cli.flags import parse_flags
from relaxforge.cli.token_text import token_texts

STATUS_STYLE = {"completed": "green", "truncated": "yellow", "failed": "red", "dropped": "dim", "filtered": "dim"}
TITLES = ("session", "step", "status", "reward", "turns", "trained", "seconds")
SCREEN = 40
"""Sessions listed where the height of the screen is unknown."""


@dataclass(frozen=True, slots=True)
class ShowArguments:
    run_dir: tyro.conf.Positional[str]
    """Folder of the run."""

    session: tyro.conf.Positional[str | None] = None
    """Session to show token by token. None: list the Sessions."""

    all: bool = False
    """List every Session instead of as many of the newest as fit the screen."""


def show(argv: Sequence[str]) -> int:
    """Print the list of Sessions, or one of them. Errors: ``ConfigError``."""
    arguments = parse_flags(ShowArguments, argv, prog="relaxforge show")
    run_dir, console = Path(arguments.run_dir), Console(highlight=False)
    if arguments.session is None:
        _print_list(list(sessions(run_dir)), console, everything=arguments.all)
    else:
        line = find_session(run_dir, arguments.session)
        print_conversation(line, token_texts(run_dir), console)
    return 0


def _print_list(rows: Sequence[SessionRow], console: Console, *, everything: bool) -> None:
    fit = max(5, console.height - 8) if console.is_terminal else SCREEN
    shown = rows if everything else rows[-fit:]
    cells = [_cells(row) for row in shown]
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for place, title in enumerate(TITLES):
        widest = max([len(title), *(len(row[place]) for row in cells)])
        # The reason is the only column that may be cut to fit the screen.
        table.add_column(title, no_wrap=True, min_width=widest, justify="left" if place < 3 else "right")
    table.add_column("why", no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    if len(shown) < len(rows):
        console.print(f"... {len(rows) - len(shown)} earlier Sessions; --all lists them")
    console.print(table)
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(row.status for row in rows).most_common())
    console.print(f"{len(rows)} Sessions: {statuses}")


def _cells(row: SessionRow) -> list[str | Text]:
    why = f"{row.failure.category}: {row.failure.message}" if row.failure else row.drop_reason or ""
    return [
        row.session_id,
        str(row.rollout_id),
        Text(row.status, STATUS_STYLE.get(row.status, "")),
        "-" if row.reward is None else f"{row.reward:.3g}",
        str(row.turns),
        f"{row.tokens.trained}/{row.tokens.sampled}",
        f"{sum(value or 0.0 for value in row.duration_s.values()):.1f}",
        Text(visible(why.partition("\n")[0])),
    ]
