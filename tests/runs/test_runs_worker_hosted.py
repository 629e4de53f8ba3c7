"""A whole evaluation against a hosted model, which is our own gateway here; and what becomes of secrets."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from rollout_parts import HeardEngine, new_session, says
from worker_parts import HEAD, Workspace

from relaxforge.agents.config import AgentConfig
from relaxforge.gateway.config import GatewayConfig
from relaxforge.gateway.server import Gateway
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.store import environments
from relaxforge.store.vault import open_vault

VALUE = "a-secret-of-some-length"


@pytest.fixture
def workspace(on_loop, app_database, database_urls, two_organizations, tmp_path):
    return Workspace(on_loop, app_database, database_urls, two_organizations.a, tmp_path)


@pytest.fixture
def vault(tmp_path):
    return open_vault(tmp_path / "secrets-key")


def test_an_evaluation_of_a_hosted_model_keeps_messages_and_usage(workspace, vault, renderer):
    async def open_host():
        registry = SessionRegistry()
        host = new_session(renderer, HeardEngine(renderer, says("three")), session_id="train-g000009-00")
        registry.add(host)
        gateway = Gateway(registry, GatewayConfig(), ("tiny",), dict)
        await gateway.start()
        return gateway, host

    agent = HEAD + "answer = say(user('one plus two'))\noutput(1.0 if answer['content'] == 'three' else 0.0)\n"
    published = workspace.publish(agent)
    gateway, host = workspace.run_async(open_host())
    try:
        key = str(host.identity.credential)
        workspace.write(environments.set_secret, vault, published[0], "MODEL_KEY", key)
        base_url = gateway.base_url + "/v1"
        upstream = {"baseUrl": base_url, "model": "tiny", "apiKeySecret": "MODEL_KEY"}
        run_id = workspace.start(published, model={"upstream": upstream})
        other = workspace.start(published, model={"upstream": {**upstream, "apiKeySecret": "NONE"}})
        workspace.work(run_id, other, worker=workspace.worker(vault=vault, allow_upstream=(base_url + "/",)))
    finally:
        workspace.run_async(gateway.close())
        workspace.run_async(host.seal())
    rows = workspace.attempts(run_id)
    assert [(row["status"], row["reward"], row["model_name"]) for row in rows] == [("completed", 1.0, "tiny")] * 2
    assert all(row["prompt_tokens"] > 0 and row["completion_tokens"] > 0 for row in rows)
    session = workspace.artifact(rows[0]["session_artifact_id"])
    assert key.encode() not in session
    assert [state["tokens"] for state in json.loads(session)["forest"]] == [[], []]
    assert "has no secret NONE" in workspace.run(other)["last_error"]


def test_secrets_reach_the_agent_and_nothing_that_is_stored(workspace, vault):
    agent = HEAD + (
        "value = os.environ['API_KEY']\nprint('the key is', value)\nsay(user('use ' + value))\n"
        "assert 'OTHER_KEY' not in os.environ\noutput(1.0, note=value)\n"
    )
    published = workspace.publish(agent, '[secrets]\nrequired = ["API_KEY"]\n')
    for name in ("API_KEY", "OTHER_KEY"):
        workspace.write(environments.set_secret, vault, published[0], name, VALUE + name)
    run_id = workspace.start(published, attempt_count=1)
    workspace.work(run_id, worker=workspace.worker(vault=vault))
    (row,) = workspace.attempts(run_id)
    assert (row["status"], row["reward"]) == ("completed", 1.0)
    for artifact in ("trajectory_artifact_id", "session_artifact_id"):
        body = workspace.artifact(row[artifact]).decode()
        assert VALUE not in body
    assert VALUE not in everything_in(workspace)
    assert "the key is" in json.loads(workspace.artifact(row["trajectory_artifact_id"]))["log"]


def everything_in(workspace):
    """All rows of all tables as text; bodies of artifacts are compared on their own."""
    tables = [name for (name,) in workspace.admin("SELECT relname FROM pg_class WHERE relrowsecurity")]
    assert len(tables) > 10
    return "".join(str(workspace.admin(f"SELECT t::text FROM {table} t")) for table in tables if table != "artifacts")


@pytest.mark.parametrize(
    "check",
    [
        "raise SystemExit('the key was ' + os.environ['API_KEY'])",
        "write({'reward': 0.5, 'failure_category': os.environ['API_KEY'], 'stage_' + os.environ['API_KEY']: 1})",
        "write({'reward': 'no number but ' + os.environ['API_KEY']})",
        "write({'reward': 7, 'because': os.environ['API_KEY']})",
    ],
    ids=["its last words", "names", "a bad reward", "a reward out of range"],
)
def test_secrets_are_in_no_row_whatever_an_evaluator_says(workspace, vault, check):
    manifest = (
        f'[evaluator]\ncommand = "{sys.executable} -S -E evaluator/check.py"\n[secrets]\nrequired = ["API_KEY"]\n'
    )
    write = (
        "import json, os\n"
        "def write(verdict):\n    json.dump(verdict, open(os.environ['RELAX_EVALUATION_OUTPUT'], 'w'))\n"
    )
    agent = HEAD + "say(user('x'))\nraise SystemExit('failed with ' + os.environ['API_KEY'])\n"
    published = workspace.publish(agent, manifest, evaluator__check_dot_py=write + check)
    workspace.write(environments.set_secret, vault, published[0], "API_KEY", VALUE)
    run_id = workspace.start(published, attempt_count=1)
    workspace.work(run_id, worker=workspace.worker(vault=vault))
    (row,) = workspace.attempts(run_id)
    assert row["ended_at"] is not None
    assert VALUE not in everything_in(workspace)
    assert VALUE not in str([workspace.artifact(row[f"{kind}_artifact_id"]) for kind in ("trajectory", "session")])


def test_an_environment_with_secrets_does_not_run_without_their_key(workspace, vault):
    published = workspace.publish()
    workspace.write(environments.set_secret, vault, published[0], "API_KEY", VALUE)
    run_id = workspace.start(published)
    workspace.work(run_id)
    assert "this worker has no key file (--secrets-key-file)" in workspace.run(run_id)["last_error"]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_sandboxed_attempt_sees_its_own_folders_and_the_model_alone(workspace, tmp_path):
    credential = tmp_path / "worker-url"
    credential.write_text("postgresql://...")
    agent = HEAD + (
        "import glob\n"
        "say(user('x'))\n"
        f"others = [path for path in glob.glob({str(tmp_path)!r} + '/work/*/*/*/*')\n"
        "          if not os.environ['RELAX_SESSION_IO_DIR'] in (path, path.removesuffix('.trial'))]\n"
        f"seen = others + glob.glob({str(credential)!r}) + glob.glob('evaluator*')\n"
        "seen += [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) > 100]\n"
        "output(0.0 if seen else 1.0, seen=seen)\n"
    )
    check = (
        "import json, os\n"
        "said = json.load(open(os.environ['RELAX_OUTPUT_JSON']))\n"
        "json.dump({'reward': said['reward']}, open(os.environ['RELAX_EVALUATION_OUTPUT'], 'w'))\n"
    )
    manifest = f'[evaluator]\ncommand = "{sys.executable} -S -E evaluator/check.py"\n'
    run_id = workspace.start(workspace.publish(agent, manifest, evaluator__check_dot_py=check), attempt_count=1)
    agents = AgentConfig(agent_command="true", agent_kill_grace=0.5, agent_sandbox="bwrap")
    workspace.work(run_id, worker=workspace.worker(agents))
    (row,) = workspace.attempts(run_id)
    session = json.loads(workspace.artifact(row["session_artifact_id"]))
    assert (row["status"], row["reward"], row["failure_message"]) == ("completed", 1.0, None), session["metadata"]
