"""The agents that we hand out, run as processes against a plain HTTP server that answers as told."""

import json
import os
import shlex
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from relaxforge.cli.config import load_config

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "src" / "relaxforge" / "cli" / "starter"


class Model(HTTPServer):
    """Answers chat requests with ``replies`` in order and keeps what it was sent."""

    def __init__(self, replies):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.requests, self.paths, self.keys = list(replies), [], [], []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        reply = self.server.replies.pop(0)
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def run_agent(tmp_path):
    def run(folder, task, replies):
        """The output of the agent of ``folder/run.toml`` (None: it wrote none) and the model that it talked to."""
        (tmp_path / "in.json").write_text(json.dumps(task))
        with Model(replies) as model:
            threading.Thread(target=model.serve_forever, args=(0.01,), daemon=True).start()
            config = load_config("train", [str(folder / "run.toml")])
            env = {
                "PATH": os.environ["PATH"],
                "RELAX_INPUT_JSON": str(tmp_path / "in.json"),
                "RELAX_OUTPUT_JSON": str(tmp_path / "out.json"),
                "RELAX_BASE_URL": f"http://127.0.0.1:{model.server_port}/agentic_api",
                "RELAX_SESSION_ID": "s1.secret",
            }
            subprocess.run(shlex.split(config.agents.agent_command), cwd=config.agents.agent_cwd, env=env, check=True)
            model.shutdown()
        output = tmp_path / "out.json"
        return (json.loads(output.read_text()) if output.exists() else None), model

    return run


@pytest.mark.parametrize(
    ("replies", "reward", "first_try"),
    [(["3 + 4 = 7"], 1.0, 1.0), (["8", "Sorry, 7."], 0.5, 0.0), (["8", "9"], 0.0, 0.0), ([None, "7"], 0.5, 0.0)],
)
def test_the_sum_checker_asks_again_only_after_a_wrong_answer(run_agent, replies, reward, first_try):
    output, model = run_agent(ROOT / "examples/01-sum-checker", {"metadata": {"a": 3, "b": 4}}, replies)
    assert output == {"reward": reward, "metadata": {"task_success": float(reward > 0), "first_try": first_try}}
    assert len(model.requests) == len(replies)
    assert set(model.paths) == {"/agentic_api/v1/chat/completions"}
    assert set(model.keys) == {"Bearer s1.secret"}
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        count = len(earlier["messages"])
        assert later["messages"][:count] == earlier["messages"]
        assert later["messages"][count]["role"] == "assistant"


def test_the_reasoning_gym_agent_asks_once_and_leaves_the_reward_to_the_verifier(run_agent):
    messages = [{"role": "user", "content": "What is 4 - 1?"}]
    output, model = run_agent(ROOT / "examples/02-reasoning-gym", {"messages": messages}, ["3"])
    assert output is None
    assert [request["messages"] for request in model.requests] == [messages]


@pytest.mark.parametrize(("reply", "reward"), [("Yes.", 1.0), ("No.", 0.0), (None, 0.0)])
def test_the_starter_agent_rewards_the_right_answer(run_agent, reply, reward):
    task = {"messages": [{"role": "user", "content": "Is ice cold?"}], "metadata": {"answer": "yes"}}
    output, _ = run_agent(STARTER, task, [reply])
    assert output == {"reward": reward, "metadata": {"task_success": reward}}
