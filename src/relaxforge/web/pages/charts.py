"""Curves and bars as numbers that a template writes into SVG. Nothing is drawn that is not in the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

WIDTH, HEIGHT = 560, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 12, 26
MOST_POINTS = 400
SMALLEST = 1e-9
"""Differences below this are drawn as none."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A label and where it stands."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: ``path`` for SVG and its last value; single points get a mark of their own."""

    name: str
    index: int
    path: str
    points: Sequence[tuple[float, float]]
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart; ``curves`` is empty when nothing was reported."""

    title: str
    curves: Sequence[Curve]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def line_chart(title: str, series: Mapping[str, Sequence[tuple[float, float | None]]]) -> Chart:
    """Curves of ``series`` (name -> points in order of x), with 0 on the axis. A missing value is left out, not 0."""
    known = {name: [(x, y) for x, y in points if y is not None and isfinite(y)] for name, points in series.items()}
    known = {name: points for name, points in known.items() if points}
    if not known:
        return Chart(title, (), (), (), f"{title}: nothing was reported")
    xs = [x for points in known.values() for x, _ in points]
    ys = [y for points in known.values() for _, y in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs), whole=True), ticks(min(0.0, *ys), max(0.0, *ys))
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(y_ticks), max(y_ticks)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _scale(x, x_low, x_high, LEFT, WIDTH - RIGHT),
            _scale(y, y_low, y_high, HEIGHT - BOTTOM, TOP),
        )

    curves = []
    for index, (name, points) in enumerate(known.items()):
        placed = [place(x, y) for x, y in _thinned(points)]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        curves.append(Curve(name, index, path, placed if len(placed) <= 40 else (), _label(points[-1][1])))
    return Chart(
        title,
        curves,
        [Tick(place(x, y_low)[0], _label(x)) for x in x_ticks if x_low <= x <= x_high],
        [Tick(place(x_low, y)[1], _label(y)) for y in y_ticks],
        f"{title}: " + "; ".join(_words(name, points) for name, points in known.items()),
    )


def _words(name: str, points: Sequence[tuple[float, float]]) -> str:
    first, last = points[0], points[-1]
    return f"{name} from {_label(first[1])} at {_label(first[0])} to {_label(last[1])} at {_label(last[0])}"


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    stride = -(-len(points) // MOST_POINTS)
    return [*points[:-1:stride], points[-1]]


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    return (start + end) / 2 if high - low < SMALLEST else start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers that span ``low`` to ``high``."""
    if high - low < SMALLEST:
        return [low]
    step = _round_step((high - low) / most)
    if whole:
        step = max(1.0, step)
    first = floor(low / step)
    count = -floor(-(high / step - first))
    return [round((first + index) * step, 10) for index in range(int(count) + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(nice * power for nice in (1.0, 2.0, 2.5, 5.0, 10.0) if nice * power >= rough * 0.999)


def _label(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.3g}"


def bar_width(value: float, most: float, width: float = 100.0) -> float:
    """How long the bar of ``value`` is when the longest, ``most``, has ``width``; never invisible unless 0."""
    return 0.0 if value <= 0 or most <= 0 else max(1.0, round(value / most * width, 2))


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a whole: where it begins and how long it is, of 100."""

    name: str
    index: int
    start: float
    length: float
    value: float


def segments(parts: Mapping[str, float]) -> list[Segment]:
    """Parts side by side, in their order; parts of nothing are left out."""
    whole = sum(value for value in parts.values() if value > 0)
    placed: list[Segment] = []
    at = 0.0
    for index, (name, value) in enumerate((name, value) for name, value in parts.items() if value > 0):
        length = value / whole * 100
        placed.append(Segment(name, index, round(at, 3), round(length, 3), value))
        at += length
    return placed


PHASES = ("prepare", "world", "wait", "model", "agent", "reward")
SHORTEST_S = 0.005
"""Phases shorter than this are not shown."""


def phases(durations: Mapping[str, float]) -> dict[str, float]:
    """Seconds one after the other, from the durations of a Session, some of which are parts of others.

    Its active time is the model's and the agent's; the world is made while it is prepared.
    """
    apart = dict(durations)
    active, prepare = apart.pop("active", 0.0), apart.get("prepare", 0.0)
    model = min(active, apart.pop("generation", 0.0))
    world = min(prepare, apart.get("world", 0.0))
    apart |= {"prepare": prepare - world, "world": world, "model": model, "agent": active - model}
    names = [*PHASES, *sorted(set(apart) - set(PHASES))]
    return {name: apart[name] for name in names if apart.get(name, 0.0) >= SHORTEST_S}
