"""The demo in small: three real steps of the packaged model through the example's agent, nothing scripted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaxforge.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-sum-checker"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_steps_of_the_demo_train_the_real_model(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("".join((EXAMPLE / "heldout.jsonl").read_text().splitlines(keepends=True)[:8]))
    run_dir = tmp_path / "run"
    flags = "--num-rollout 3 --rollout-batch-size 2 --n-samples-per-prompt 4 --eval-interval 3"
    code = main(
        ["train", str(EXAMPLE / "run.toml"), "--run-dir", str(run_dir), *flags.split(),
         "--n-samples-per-eval-prompt", "1", "--eval-prompt-data", "sums", str(held_out)]
    )  # fmt: skip
    out, err = capfd.readouterr()
    assert code == 0, err
    assert out.count("AGENTIC ROLLOUT event=accounting_end ") == 3
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "step"]
    assert [row["rollout_id"] for row in steps] == [0, 1, 2]
    assert [row["rollout_id"] for row in rows if row["kind"] == "eval"] == [0, 3]
    for row in steps:
        assert row["tokens/sampled"] == row["tokens/trained"] + row.get("tokens/undelivered", 0)
        assert 0 <= row["rollout/raw_reward"] <= 1
        assert row["train/logprob_diff_mean"] < 0.1, "engine and trainer compute the same model"
    assert (run_dir / "report.png").stat().st_size > 1000
    checkpoint = run_dir / "checkpoints" / "step_3"
    loads = (
        "import sys, transformers; "
        "print(transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).num_parameters())"
    )
    loaded = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", loads, str(checkpoint)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(loaded.stdout) > 130_000_000
