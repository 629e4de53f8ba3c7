"""Claim: the demo learns. On each of three seeds fixed beforehand, training reward and held-out accuracy rise.

Trains ``examples/01-sum-checker`` as ``make demo`` does, once per seed. Rise of the reward: mean of the last three
steps minus mean of the first three, at least 0.4. Rise of the held-out accuracy: last evaluation minus first, at least
0.25.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gateway_parts import RESULTS, save, table

SEEDS = (42, 7, 2026)
RUN_FILE = Path(__file__).parents[1] / "examples" / "01-sum-checker" / "run.toml"
REWARD, ACCURACY = "rollout/raw_reward", "eval/sums/accuracy"


def learn(seed: int, flags: list[str]) -> dict[str, Any]:
    """One training run: its two curves, its phases, and what they amount to."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "relaxforge.cli.main", "train", str(RUN_FILE), "--run-dir", f"{folder}/run"]
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        started = time.perf_counter()
        subprocess.run([*words, "--rollout-seed", str(seed), *flags], check=True, env=env, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        rows = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    reward = [row[REWARD] for row in rows if row["kind"] == "step"]
    accuracy = [(row["rollout_id"], row[ACCURACY]) for row in rows if row["kind"] == "eval"]
    steps = [row for row in rows if row["kind"] == "step"]
    phases = {name: statistics.median(row[f"perf/{name}_time"] for row in steps)
              for name in ("rollout", "train", "publish", "step")}  # fmt: skip
    return {
        "seed": seed,
        "reward": reward,
        "accuracy": accuracy,
        "reward_rise": statistics.fmean(reward[-3:]) - statistics.fmean(reward[:3]),
        "accuracy_rise": accuracy[-1][1] - accuracy[0][1],
        "median_seconds": phases,
        "seconds": seconds,
    }


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for run in runs:
        left.plot(range(len(run["reward"])), run["reward"], marker="o", markersize=3, label=f"seed {run['seed']}")
        right.plot(*zip(*run["accuracy"], strict=True), marker="o", markersize=3, label=f"seed {run['seed']}")
    left.set(xlabel="rollout step", title="training reward", ylim=(-0.02, 1.02))
    right.set(xlabel="rollout step", title="held-out accuracy")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    FigureCanvasAgg(figure).print_png(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options, flags = parser.parse_known_args()
    runs = [learn(seed, flags) for seed in options.seeds]
    print(table(["seed", "reward rise", "accuracy rise", "seconds"],
                [[run["seed"], run["reward_rise"], run["accuracy_rise"], run["seconds"]] for run in runs]))  # fmt: skip
    path = save("learning", {"runs": runs}, RESULTS)
    draw(runs, path.with_suffix(".png"))
    print(path)
    if any(run["reward_rise"] < 0.4 or run["accuracy_rise"] < 0.25 for run in runs):
        raise SystemExit("the demo did not learn enough on every seed")
