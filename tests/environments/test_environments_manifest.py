"""environment.toml: what it may say, and the sentence for each slip."""

import json
from dataclasses import asdict

import pytest
from bundle_folder import MANIFEST

from relaxforge.core.errors import BundleError
from relaxforge.environments.manifest import AgentPart, EvaluatorPart, WorldPart, read_manifest


def test_a_manifest_with_everything_is_read_as_written_and_is_json():
    manifest = read_manifest("""
        name = " shop "
        description = "d"
        [agent]
        name = "clerk"
        version = "2"
        command = "python a.py"
        cwd = "agents/clerk"
        env = ["A=b=c", "EMPTY="]
        timeout_s = 5
        startup_timeout_s = 0.5
        [world]
        command = "python w.py"
        [evaluator]
        python = "check.run"
        folder = "judge"
        timeout_s = 2.5
        stages = ["stage_one", "stage_two.half"]
        [[task]]
        input = "order"
        label = 3
        [tasks]
        label_key = "label"
        [secrets]
        required = ["API_KEY"]
    """)
    assert manifest.name == "shop"
    assert manifest.agent == AgentPart("python a.py", "clerk", "2", "agents/clerk", ("A=b=c", "EMPTY="), 5.0, 0.5)
    assert manifest.world == WorldPart("python w.py", 60.0)
    assert manifest.evaluator == EvaluatorPart("", "check.run", "judge", 2.5, ("stage_one", "stage_two.half"))
    assert manifest.inline_tasks == ({"input": "order", "label": 3},)
    assert json.loads(json.dumps(asdict(manifest)))["secrets"] == {"required": ["API_KEY"]}


def test_world_evaluator_and_secrets_may_be_absent():
    manifest = read_manifest('name = "x"\n[agent]\ncommand = "a"\n[[task]]\ninput = "hi"\n')
    assert (manifest.world, manifest.evaluator, manifest.secrets.required) == (None, None, ())


@pytest.mark.parametrize(
    ("spoiled", "sentence"),
    [
        ("name =", "is not valid TOML"),
        (MANIFEST.replace('name = "box"', ""), "name must have 1 to 100 characters"),
        (MANIFEST.replace('"box"', "7"), "name must be a string, got 7"),
        (MANIFEST.replace("[agent]", "[agnet]"), r"unknown key agnet; did you mean agent\?"),
        (MANIFEST.replace("command", "comand", 1), r"unknown key agent.comand; did you mean agent.command\?"),
        (MANIFEST.replace('command = "python3 agent.py"', ""), "agent.command is missing"),
        (MANIFEST.replace('"python3 agent.py"', '" "'), "agent.command is empty"),
        ('name = "x"', r"has no \[agent\]"),
        ('name = "x"\nagent = "python"', r"agent must be a table"),
        (
            MANIFEST.replace("[evaluator]", "timeout_s = true\n[evaluator]"),
            "agent.timeout_s must be a number of seconds",
        ),
        (MANIFEST.replace("[evaluator]", "timeout_s = nan\n[evaluator]"), "agent.timeout_s must be above 0"),
        (MANIFEST.replace("[evaluator]", "timeout_s = 0\n[evaluator]"), "above 0 and at most 86400 seconds, got 0"),
        (MANIFEST.replace("[evaluator]", 'cwd = "../x"\n[evaluator]'), "agent.cwd '../x' must be a relative path"),
        (MANIFEST.replace("[evaluator]", 'env = ["HOME"]\n[evaluator]'), "agent.env 'HOME' must be KEY=VALUE"),
        (MANIFEST.replace("[evaluator]", 'env = ["RELAX_X=1"]\n[evaluator]'), "'RELAX_X' cannot name a variable"),
        (MANIFEST.replace("[evaluator]", "env = [1]\n[evaluator]"), r"agent.env\[0\] must be a string, got 1"),
        (MANIFEST.replace("[tasks]", 'python = "check.f"\n[tasks]'), "needs either command or python"),
        (MANIFEST.replace('command = "python3 e', 'python = "python3 e'), "must be module.function"),
        (MANIFEST.replace("[tasks]", 'folder = "."\n[tasks]'), "folder of its own"),
        (MANIFEST.replace("[tasks]", 'folder = "/etc"\n[tasks]'), "evaluator.folder '/etc' must be a relative path"),
        (MANIFEST.replace("[tasks]", 'stages = ["one"]\n[tasks]'), "'one' must be stage_"),
        (MANIFEST.replace("[tasks]\n", "").replace('path = "tasks.jsonl"\n', ""), "needs tasks"),
        (MANIFEST + '[[task]]\ninput = "x"\n', "needs tasks: either"),
        (MANIFEST.replace("[tasks]\n", "[[task]]\nwhen = 2026-01-01\n").replace("path =", "p ="), "written as JSON"),
        (MANIFEST + '[secrets]\nrequired = ["a-b"]\n', "'a-b' cannot name a variable"),
    ],
)
def test_each_slip_has_its_sentence(spoiled, sentence):
    with pytest.raises(BundleError, match=sentence):
        read_manifest(spoiled)
