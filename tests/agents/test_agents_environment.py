"""What an agent sees: the seven variables, what was asked for, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from agent_parts import BASE_URL, prepare, workshop

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.environment import base_environment, withheld
from relaxforge.agents.folder import discard_folder, open_folder
from relaxforge.core.errors import AgentError, ConfigError, StorageError
from relaxforge.core.sessions import FailureCategory

PARENT = {"PATH": os.environ["PATH"], "HOME": "/h", "LC_ALL": "C.UTF-8", "WANDB_API_KEY": "k", "PYTHONPATH": "/p"}
RELAX = {
    "RELAX_INPUT_JSON",
    "RELAX_OUTPUT_JSON",
    "RELAX_SESSION_IO_DIR",
    "RELAX_BASE_URL",
    "RELAX_SESSION_ID",
    "RELAX_ROLLOUT_MODE",
    "RELAX_GROUP_ID",
}
OF_BASH = {"PWD", "SHLVL", "_"}


def test_an_agent_process_has_exactly_the_variables_of_the_contract(tmp_path: Path) -> None:
    async def go() -> dict[str, str]:
        async with workshop(tmp_path, agent_env=("FOO=bar=baz", "EMPTY=")) as shop:
            launch = prepare(shop.sessions_dir, "cat /proc/self/environ", config=shop.config, parent=PARENT)
            await (await shop.agents.launch(launch)).wait()
            entries = launch.log_path.read_text().rstrip("\0").split("\0")
            return dict(entry.split("=", 1) for entry in entries)

    seen = asyncio.run(go())
    folder = tmp_path / "sessions" / "train-g000000-00"
    assert seen.keys() == {"PATH", "HOME", "LC_ALL", "FOO", "EMPTY"} | RELAX | OF_BASH
    assert (seen["FOO"], seen["EMPTY"], seen["HOME"]) == ("bar=baz", "", "/h")
    assert seen["RELAX_INPUT_JSON"] == str(folder / "session_input.json")
    assert seen["RELAX_OUTPUT_JSON"] == str(folder / "session_output.json")
    assert seen["RELAX_SESSION_IO_DIR"] == str(folder)
    assert seen["RELAX_BASE_URL"] == BASE_URL
    assert seen["RELAX_SESSION_ID"].startswith("train-g000000-00.")
    assert (seen["RELAX_ROLLOUT_MODE"], seen["RELAX_GROUP_ID"]) == ("train", "train-g000000")


def test_a_later_entry_wins_and_a_bare_key_inherits() -> None:
    config = AgentConfig(agent_env=("A=1", "HOME=/elsewhere", "WANDB_API_KEY", "A=2"))
    env = base_environment(config, PARENT)
    assert (env["A"], env["HOME"], env["WANDB_API_KEY"]) == ("2", "/elsewhere", "k")
    assert withheld(config, PARENT) == ("PYTHONPATH",)


def test_a_bare_key_that_is_not_set_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--agent-env TOKEN inherits a variable that is not set"):
        base_environment(AgentConfig(agent_env=("TOKEN",)), PARENT)


def test_model_requests_stay_off_the_proxy(tmp_path: Path) -> None:
    proxied = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy:3128", "no_proxy": "intern"}
    env = prepare(tmp_path, "true", parent=proxied).env
    assert (env["no_proxy"], env["NO_PROXY"]) == ("intern,127.0.0.1", "127.0.0.1")
    assert env["HTTPS_PROXY"] == "http://proxy:3128"
    assert "no_proxy" not in prepare(tmp_path, "true", "direct", parent={"PATH": "/bin"}).env


def test_the_session_folder_is_private_and_its_input_complete(tmp_path: Path) -> None:
    given = {"messages": [{"role": "user", "content": "é\udead\ud83d\ude00\0"}]}
    folder = open_folder(tmp_path / "new" / "sessions", "s-0", given)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["run.log", "session_input.json"]
    text = (folder / "session_input.json").read_text(encoding="utf-8")
    assert "é" in text
    assert json.loads(text)["messages"][0]["content"] == "é\ufffd\U0001f600\0"


def test_a_folder_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"Session s-0: cannot prepare .*/sessions/s-0"):
        open_folder(tmp_path / "sessions", "s-0", {})


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"])
def test_a_task_that_is_not_json_is_our_fault(tmp_path: Path, value: object) -> None:
    with pytest.raises(AgentError, match="Session s-0: the Task cannot be written as JSON") as caught:
        open_folder(tmp_path, "s-0", {"metadata": {"x": value}})
    assert caught.value.category is FailureCategory.ENV_SETUP
    assert not (tmp_path / "s-0").exists()


def test_discarding_removes_the_folder_with_what_the_agent_left(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, "s-0", {})
    (folder / "deep" / "deeper").mkdir(parents=True)
    assert discard_folder(folder)
    assert not folder.exists()
