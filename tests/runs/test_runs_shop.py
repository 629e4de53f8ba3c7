"""The shop of the examples through a worker: one order placed wrongly, told as the source of the workspace tells it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import pytest
from worker_parts import Workspace

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.sandbox import check_sandbox
from relaxforge.core.errors import ConfigError
from relaxforge.environments.bundle import pack, read_bundle
from relaxforge.export.kinds import DEFAULT_FORMAT, FORMATS, KINDS, choose
from relaxforge.export.lines import single_rollout
from relaxforge.store import environments, rollouts
from relaxforge.store.rollouts import Filter

SHOP = Path(__file__).parents[2] / "examples" / "03-corner-shop"
SCRIPTED = {"engine": "scripted", "replies": "replies.jsonl"}


@pytest.fixture
def workspace(on_loop, app_database, database_urls, two_organizations, tmp_path):
    return Workspace(on_loop, app_database, database_urls, two_organizations.a, tmp_path)


def agents(sandbox):
    config = AgentConfig(agent_command="true", agent_kill_grace=0.5, agent_sandbox=sandbox)
    try:
        check_sandbox(config, os.environ)
    except ConfigError as error:
        pytest.skip(str(error))
    return config


def published(workspace):
    bundle = read_bundle(SHOP)
    environment = workspace.write(environments.create_environment, name=f"shop-{uuid4()}")
    version = workspace.write(
        environments.publish, environment["id"], manifest=asdict(bundle.manifest),
        files=[file.listed for file in bundle.files], digest=bundle.digest, package=pack(bundle),
    )  # fmt: skip
    return environment["id"], version.version_id


def exported(workspace, kind, name=DEFAULT_FORMAT):
    async def spool():
        made = await rollouts.spool(workspace.app, workspace.scope, Filter(kind=kind), choose(kind, name).format)
        with made.file as file:
            return [json.loads(line) for line in file]

    return workspace.run_async(spool())


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_the_failed_line_and_the_single_answer_of_the_source_come_from_a_real_attempt(workspace, sandbox):
    config, shop = agents(sandbox), published(workspace)
    run_id = workspace.start(shop, attempt_count=5, concurrency=2, model=SCRIPTED)
    workspace.work(run_id, worker=workspace.worker(config))
    rows = workspace.attempts(run_id)
    assert [row["failure_message"] for row in rows] == [None] * 5
    assert [row["reward"] for row in rows] == [1.0, 0.5, 0.15, 0.0, 1.0]
    assert [row["failure_category"] for row in rows] == [None, "partial", "wrong_item", "nothing_ordered", None]

    (line,) = [line for line in exported(workspace, "failed") if line["reward"] == 0.15]
    keys = ["schemaVersion", "privacyClass", "format", "rolloutId", "seed", "reward", "evaluationRunId", "trajectory"]
    assert list(line)[: len(keys)] == keys
    assert (line["schemaVersion"], line["privacyClass"], line["format"]) == (1, "PRIVATE", "atif-shaped")
    assert line["evaluationRunId"] == str(run_id)
    first, *rest = line["trajectory"]
    assert list(first) == ["step", "tool", "command", "observation"]
    assert (first["step"], first["tool"], first["command"]) == (1, "mcp", "initialize")
    assert first["observation"].startswith("corner-shop, protocol 2025-06-18")
    assert [step["command"] for step in rest] == ["stock", "reserve pine-shelf 2", "order C-17", ""]

    async def single(tx):
        return single_rollout(await rollouts.get(tx, rows[2]["rollout_id"]))

    assert workspace.write(single) == {
        "id": line["rolloutId"], "seed": line["seed"], "reward": 0.15, "environmentVersionId": str(shop[1]),
        "evaluationRunId": str(run_id), "stages": {"stage_inventory": 1, "stage_checkout": 0},
    }  # fmt: skip

    artifact = json.loads(workspace.artifact(rows[2]["trajectory_artifact_id"]))
    assert list(artifact) == ["schemaVersion", "log", "trajectory"]
    assert artifact["schemaVersion"] == 1
    assert "placed ord-8841" in artifact["log"].lower()
    assert json.loads(artifact["trajectory"])["steps"] == line["trajectory"]


def test_the_best_is_preferred_to_the_worst(workspace):
    run_id = workspace.start(published(workspace), attempt_count=5, model=SCRIPTED)
    workspace.work(run_id)
    rows = {str(row["rollout_id"]): row["reward"] for row in workspace.attempts(run_id)}
    (pair,) = exported(workspace, "preference")
    assert (rows[pair["preferredRolloutId"]], rows[pair["rejectedRolloutId"]]) == (1.0, 0.0)
    assert (pair["preferredReward"], pair["rejectedReward"]) == (1.0, 0.0)


def test_every_export_of_real_attempts_loads_with_datasets(workspace, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    run_id = workspace.start(published(workspace), attempt_count=5, model=SCRIPTED)
    workspace.work(run_id)
    rows = {}
    for kind in KINDS:
        for name, shape in FORMATS.items():
            if name != DEFAULT_FORMAT and (shape.pairs is None) == (kind == "preference"):
                continue
            path = tmp_path / f"{kind}-{name}.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in exported(workspace, kind, name)))
            given = {"data_files": str(path), "split": "train", "cache_dir": str(tmp_path / "cache")}
            rows[kind, name] = datasets.load_dataset("json", **given)
    counts = {kind: len(rows[kind, DEFAULT_FORMAT]) for kind in KINDS}
    assert counts == {"all": 5, "successful": 2, "failed": 3, "recovery": 2, "preference": 1}
    assert {name for kind, name in rows if len(rows[kind, name])} == set(FORMATS)
    (pair,) = rows["preference", "trl-preference"]
    assert json.loads(pair["chosen"][0]["tool_calls"][0]["function"]["arguments"]) == {"command": "stock"}
    assert pair["rejected"][0]["content"] == "Sure, I will take care of it."


@pytest.mark.slow
def test_a_model_of_ours_runs_the_same_shop_and_keeps_its_tokens(workspace):
    model = {"engine": "local", "model": "tiny"}
    run_id = workspace.start(published(workspace), attempt_count=2, model=model, budget={"maxResponseTokens": 8})
    workspace.work(run_id)
    rows = workspace.attempts(run_id)
    assert [(row["status"], row["reward"], row["model_name"]) for row in rows] == [("truncated", 0.0, "tiny")] * 2
    forest = json.loads(workspace.artifact(rows[0]["session_artifact_id"]))["forest"]
    answer = forest[-1]
    assert answer["kind"] == "response"
    assert len(answer["tokens"]) == len(answer["logprobs"]) == 8


def test_the_shop_speaks_mcp_with_the_official_client(tmp_path):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    (tmp_path / "shop.json").write_text('{"stock": {"lamp": 2}, "reserved": {}, "orders": [], "looked": false}')
    server = StdioServerParameters(
        command=sys.executable, args=["-S", "-E", str(SHOP / "shop" / "server.py")],
        env={"RELAX_WORLD_DIR": str(tmp_path)},
    )  # fmt: skip

    async def talk():
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            hello = await session.initialize()
            tools = (await session.list_tools()).tools
            said = await session.call_tool("reserve", {"item": "lamp", "count": "2"})
            return hello, [tool.name for tool in tools], said.content[0].text

    hello, tools, said = asyncio.run(talk())
    assert hello.model_dump(by_alias=True)["serverInfo"]["name"] == "corner-shop"
    assert tools == ["stock", "reserve", "order"]
    assert said == "Reserved: 2 lamp"
