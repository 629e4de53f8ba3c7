"""Every run file in the tree is one that works."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relaxforge.agents.check import check_command
from relaxforge.cli.config import load_config
from relaxforge.credit.functions import load_function
from relaxforge.tasks.dataset import open_held_out, open_training

ROOT = Path(__file__).parents[2]
RUN_FILES = sorted(
    [*ROOT.glob("examples/**/run*.toml"), *(ROOT / "src").rglob("*.toml"), *ROOT.glob("bench/**/*.toml")]
)
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/run.toml"))


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", RUN_FILES, ids=name_of)
def test_a_run_file_of_the_tree_could_start(path):
    config = load_config("train", [str(path)])
    check_command(config.agents, os.environ)
    assert len(open_training(config.data)) >= config.rollout.rollout_batch_size
    assert open_held_out(config.data)
    if config.credit.custom_rm_path:
        load_function(config.credit.custom_rm_path, "--custom-rm-path")


@pytest.mark.parametrize("folder", EXAMPLES, ids=name_of)
def test_the_data_of_an_example_is_what_its_script_writes(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    for path in copy.glob("*.jsonl"):
        path.unlink()
    subprocess.run([sys.executable, "make_tasks.py"], cwd=copy, check=True)
    for path in folder.glob("*.jsonl"):
        assert (copy / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("folder", EXAMPLES, ids=name_of)
def test_nothing_held_out_is_trained(folder):
    def rows(name):
        return {canonical(json.loads(line)) for line in (folder / name).read_text().splitlines()}

    def canonical(row):
        return row.get("input") or str(sorted(row["metadata"].values()))

    assert rows("tasks.jsonl").isdisjoint(rows("heldout.jsonl"))
    assert len(rows("heldout.jsonl")) >= 10


def test_every_example_has_its_page_and_an_agent():
    assert [folder.name for folder in EXAMPLES] == ["01-sum-checker", "02-reasoning-gym"]
    for folder in EXAMPLES:
        assert {"README.md", "agent.py", "run.toml", "make_tasks.py"} <= {path.name for path in folder.iterdir()}
