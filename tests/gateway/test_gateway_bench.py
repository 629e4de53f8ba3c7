"""The published benches run, in small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("gateway.py", ("--turns", "10", "--sessions", "1")),
        ("gateway_throughput.py", ("--requests", "64")),
        ("gateway_sessions.py", ("--turns", "1")),
    ],
)
def test_a_small_run_writes_its_figures(script, options, tmp_path):
    command = [sys.executable, BENCH / script, *options, "--results", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    [written] = tmp_path.glob("*.json")
    figures = json.loads(written.read_text())
    assert figures["machine"]["cores"]
    expected = {"paced", "saturated"} if "sessions" in script else {"direct", "gateway alone", "relaxforge"}
    assert expected <= figures["figures"].keys()
