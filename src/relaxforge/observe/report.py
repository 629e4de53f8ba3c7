"""What a run achieved, at its end: a table, a small plot in the terminal and the same plot as a PNG."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from relaxforge.observe.log import get_logger

REWARD = "rollout/raw_reward"
ACCURACY = "/accuracy"
"""Held-out curves are the metrics named ``eval/<dataset>/accuracy``."""

COLUMNS = {
    "reward": REWARD,
    "truncated": "rollout/truncated_ratio",
    "response": "rollout/response_length/mean",
    "kl": "train/kl_loss",
    "entropy": "train/entropy",
    "grad": "train/grad_norm",
    "seconds": "perf/step_time",
}
"""Columns of the table and the metric each one shows; a column without any value is left out."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of (rollout step, value)."""

    label: str
    marker: str
    points: tuple[tuple[int, float], ...]


def print_report(run_dir: Path, console: Console | None = None) -> None:
    """Print table and plot of ``run_dir/metrics.jsonl``, and write ``run_dir/report.png``; nothing without metrics."""
    rows = read_metrics(run_dir / "metrics.jsonl")
    if not rows:
        return
    console = console or Console()
    curves = curves_of(rows)
    console.print(table_of(rows))
    for line in plot_lines(curves, width=max(16, min(64, console.width - 8))):
        console.print(line, highlight=False, markup=False)
    if write_png(curves, run_dir / "report.png"):
        console.print(f"plot: {run_dir / 'report.png'}", highlight=False, soft_wrap=True)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl in order; of a step that was repeated after a resume, the last attempt."""
    if not path.exists():
        return []
    latest: dict[tuple[str, int], dict[str, Any]] = {}
    for line in path.read_bytes().split(b"\n")[:-1]:  # Behind the last newline is nothing, or half a line.
        row = json.loads(line)
        latest[row["kind"], row["rollout_id"]] = row
    return sorted(latest.values(), key=lambda row: (row["rollout_id"], row["kind"] == "step"))


def curves_of(rows: Sequence[dict[str, Any]]) -> list[Curve]:
    """The training reward, then the accuracy on each held-out dataset."""
    held_out = sorted({name for row in rows for name in row if name.startswith("eval/") and name.endswith(ACCURACY)})
    names = {REWARD: "training reward"} | {name: f"held-out accuracy: {_dataset(name)}" for name in held_out}
    curves = []
    for (name, label), marker in zip(names.items(), "●○◆◇▲△■□", strict=False):
        points = tuple((row["rollout_id"], row[name]) for row in rows if row.get(name) is not None)
        if points:
            curves.append(Curve(label, marker, points))
    return curves


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """One line per rollout step, the evaluation made before it on the same line."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        merged.setdefault(row["rollout_id"], {}).update(row)
    held_out = sorted({name for row in rows for name in row if name.startswith("eval/") and name.endswith(ACCURACY)})
    columns = {**COLUMNS, **{_dataset(name): name for name in held_out}}
    shown = {title: name for title, name in columns.items() if any(row.get(name) is not None for row in rows)}
    table = Table(title="step by step", title_justify="left")
    table.add_column("step", justify="right")
    for title in shown:
        table.add_column(title, justify="right")
    for step, row in sorted(merged.items()):
        table.add_row(str(step), *(_number(row.get(name)) for name in shown.values()))
    return table


def plot_lines(curves: Sequence[Curve], *, width: int, height: int = 10) -> list[str]:
    """The curves as text, ``height`` lines of ``width`` characters plus axes and legend."""
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points]
    if not steps:
        return []
    low, high = min(0.0, *values), max(1.0, *values)
    first, last = min(steps), max(steps)
    grid = [[" "] * width for _ in range(height)]
    for curve in reversed(curves):
        for step, value in curve.points:
            column = round((step - first) / max(1, last - first) * (width - 1))
            line = round((high - value) / (high - low) * (height - 1))
            grid[line][column] = curve.marker
    labels = [f"{high:6.2f}", *[" " * 6] * (height - 2), f"{low:6.2f}"]
    lines = [f"{label} |{''.join(cells)}" for label, cells in zip(labels, grid, strict=True)]
    lines.append(" " * 7 + "+" + "-" * width)
    lines.append(" " * 8 + str(first) + str(last).rjust(width - len(str(first))))
    return lines + [" " * 8 + f"{curve.marker} {curve.label}" for curve in curves]


def write_png(curves: Sequence[Curve], path: Path) -> bool:
    """Draw the curves into ``path``; ``False`` where matplotlib is not installed or the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        log.warning("plot_missing", hint="pip install matplotlib for report.png")
        return False
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="rollout step", ylabel="reward, accuracy")
    for curve in curves:
        axes.plot(*zip(*curve.points, strict=True), marker="o", markersize=3, label=curve.label)
    if all(0 <= value <= 1 for curve in curves for _, value in curve.points):
        axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend()
    image = io.BytesIO()
    FigureCanvasAgg(figure).print_png(image)
    try:
        path.write_bytes(image.getvalue())
    except OSError as error:  # The run is over and everything else about it is written.
        sys.stderr.write(f"warning: {path} cannot be written: {error.strerror}\n")
        with suppress(OSError):
            path.unlink()
        return False
    return True


def _dataset(name: str) -> str:
    return name.removeprefix("eval/").removesuffix(ACCURACY)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
