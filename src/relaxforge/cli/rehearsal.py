"""``relaxforge doctor RUN.toml --session``: one agent Session on scripted answers, looked at request by request."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxforge.cli.compose import execute
from relaxforge.cli.config import Config
from relaxforge.cli.conversation import visible
from relaxforge.cli.dump import find_session, sessions
from relaxforge.core.errors import CircuitOpen


def rehearse(config: Config) -> int:
    """Run one Session of the first Task on the scripted engine and print what became of every request.

    Nothing is kept but what is printed; a run writes the same facts into its dump. Returns 0 when the agent got
    through and its output selects what to train, 2 when not.
    """
    with tempfile.TemporaryDirectory(prefix="relaxforge-doctor-") as folder:
        run_dir = Path(folder) / "run"
        with contextlib.suppress(CircuitOpen):  # One failed Session is what the report is about.
            execute("rollout", _rehearsal(config), run_dir)
        (ended,) = sessions(run_dir)
        line = find_session(run_dir, ended.session_id)
    report(line, Console(highlight=False))
    return 2 if line["failure"] else 0


def _rehearsal(config: Config) -> Config:
    rollout = dataclasses.replace(
        config.rollout,
        rollout_batch_size=1,
        n_samples_per_prompt=1,
        over_sampling_batch_size=None,
        agentic_concurrency=None,
        max_consecutive_failed_groups=1,
        dynamic_sampling_filter_path=None,
    )
    once = dataclasses.replace(
        config.run, num_rollout=1, eval_interval=None, resume=None, save=None, save_debug_rollout_data=None
    )
    engine = dataclasses.replace(config.engine, engine="scripted")
    quiet = dataclasses.replace(config.observe, tensorboard=False, use_wandb=False)
    return dataclasses.replace(config, rollout=rollout, run=once, engine=engine, observe=quiet)


def report(line: Mapping[str, Any], console: Console) -> None:
    """Print a dump line's requests, drift, topology and export."""
    console.print(Text(f"Session {line['session_id']}: {line['status']}", "bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for title in ("request", "api", "status", "matched", "new", "notes"):
        table.add_column(title, justify="right" if title in ("status", "matched", "new") else "left")
    depths = _depths(line["forest"])
    for number, request in enumerate(line["requests"]):
        matched = depths.get(request["parent_state"], 0)
        cells = (str(number), request["api"], str(request["http_status"]), str(matched), str(request["new_messages"]))
        table.add_row(*cells, Text(visible("; ".join(_notes(request)))))
    console.print(table)
    for note in line["drift"]:
        console.print(
            f"drift: {note['request_id']} message {note['message_index']} {note['cause']}: {visible(note['excerpt'])} "
            f"({note['tokens_without_signal']} sampled tokens lose their signal)",
            markup=False,
        )
    console.print(f"history: {topology(line)}", markup=False)
    tokens = line["tokens"]
    masked = ", ".join(f"{count} {reason}" for reason, count in tokens["masked"].items())
    console.print(
        f"tokens: {tokens['sampled']} sampled = {tokens['trained']} trained + {sum(tokens['masked'].values())} masked "
        f"({masked or 'none'}) + {tokens['undelivered']} undelivered",
        markup=False,
    )
    if line["failure"]:
        console.print(Text(f"{line['failure']['category']}: {visible(line['failure']['message'])}", "red"))


def topology(line: Mapping[str, Any]) -> str:
    """Whether the answers that reached the agent form one line, a fork, or several conversations."""
    parents = {row["state"]: row["parent"] for row in line["forest"]}
    live: set[str] = set()
    for row in line["forest"]:
        if row["kind"] == "response" and row["delivered"]:
            live.update(_upwards(row["state"], parents))
    children: dict[str | None, list[str]] = {}
    for state in live:
        children.setdefault(parents[state], []).append(state)
    roots = len(children.get(None, ()))
    forks = sum(len(below) > 1 for above, below in children.items() if above is not None)
    if not live:
        return "no answer reached the agent"
    if roots == 1 and not forks:
        return "linear: implicit export works"
    parts = [f"{roots} conversations that share no start"] if roots > 1 else []
    parts += [f"{forks} fork{'s' if forks > 1 else ''}"] if forks else []
    return f"{' and '.join(parts)}: export by name, or set --agentic-implicit-export main"


def _upwards(state: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    while state is not None:
        yield state
        state = parents[state]


def _depths(forest: list[dict[str, Any]]) -> dict[str | None, int]:
    depths: dict[str | None, int] = {None: 0}
    for row in forest:
        added = 1 if row["kind"] == "response" else len(row["message"])
        depths[row["state"]] = depths[row["parent"]] + added
    return depths


def _notes(request: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{cause} x{count}" if count > 1 else cause for cause, count in request["normalised"].items())
    if request["retry_of"]:
        yield f"retry of {request['retry_of']}"
    if request["error"]:
        yield request["error"]
    if request["delivered"] is False:
        yield "answer not read"
