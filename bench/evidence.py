"""Claim: a workspace that is away, or that never answers, slows no rollout step.

The same run (Sessions of one Turn, the scripted engine, nothing but our own cost) without a workspace, with one at a
port where nobody listens, and with one that takes every connection and never answers; one after the other, in an
order drawn anew each round. The lower quartile of the steps is compared, which other work on the machine moves least.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gateway_parts import RESULTS, save, table

AGENT = Path(__file__).parents[1] / "tests" / "flows" / "agents" / "single_turn.py"


def step_times(folder: Path, steps: int, url: str | None) -> list[float]:
    """Milliseconds of each step of one run; the first one, in which caches are cold, is left out."""
    (folder / "tasks.jsonl").write_text('{"input": "Hello?"}\n')
    words = [
        sys.executable, "-m", "relaxforge.cli.main", "rollout", "--model", "tiny", "--engine", "scripted",
        "--prompt-data", str(folder / "tasks.jsonl"), "--agent-command", f"exec {sys.executable} {AGENT}",
        "--agent-cwd", str(AGENT.parent), "--run-dir", str(folder / "run"), "--num-rollout", str(steps),
        "--rollout-batch-size", "2", "--n-samples-per-prompt", "4", "--workspace-drain-timeout", "0",
    ]  # fmt: skip
    if url is not None:
        words += ["--workspace-url", url]
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "RELAXFORGE_WORKSPACE_TOKEN": "none"})
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [1e3 * row["perf/step_time"] for row in rows[1:]]


def measure(rounds: int, steps: int) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # The kernel accepts; nobody ever reads.
        urls = {
            "none": None,
            "away": "http://127.0.0.1:9",
            "silent": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        times: dict[str, list[float]] = {name: [] for name in urls}
        for _ in range(rounds):
            for name, url in random.sample(list(urls.items()), len(urls)):
                with tempfile.TemporaryDirectory() as folder:
                    times[name] += step_times(Path(folder), steps, url)
    figures = {f"{name}_step_p25_ms": statistics.quantiles(values, n=4)[0] for name, values in times.items()}
    for name in ("away", "silent"):
        figures[f"{name}_to_none"] = figures[f"{name}_step_p25_ms"] / figures["none_step_p25_ms"]
    return figures | {f"{name}_step_p50_ms": statistics.median(values) for name, values in times.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    figures = measure(options.rounds, options.steps)
    print(table(("figure", "value"), list(figures.items())))
    print(save("evidence", figures, RESULTS))
