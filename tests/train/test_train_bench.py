"""The bench of the training step in small: trl and we move the same weights to the same place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_one_step_moves_the_weights_where_trl_moves_them(tmp_path: Path) -> None:
    command = [sys.executable, "bench/train_step.py", "--model", "tiny", "--steps", "2", "--results", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    (file,) = tmp_path.glob("*-train-step.json")
    figures = json.loads(file.read_text())["figures"]
    assert figures["float32, shared prompts"]["first_step"]["relative_distance"] < 0.01
