"""A hostile agent inside the walls: it reaches for everything that is not its own, and is scored like any other.

The same agent without walls gets at most of it, which shows that it really tries.
"""

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from trial_parts import attempts, environment

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.sandbox import check_sandbox
from relaxforge.core.errors import ConfigError

SECRET = "postgresql://worker:hunter2hunter2@db/relaxforge"
OTHER = "eval-g999999-00.0123456789abcdef0123456789abcdef"

AGENT = """
import contextlib, glob, signal, socket, subprocess, sys
target = json.load(open(os.environ["RELAX_INPUT_JSON"]))["metadata"]
io, world = os.environ["RELAX_SESSION_IO_DIR"], os.environ["RELAX_WORLD_DIR"]
got = {}

def attempt(name, deed):
    try:
        got[name] = bool(deed())
    except OSError:
        got[name] = False

def read(path):
    return open(path, "rb").read()

def everywhere(word):
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/usr", "/dev")]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.path.getsize(path) < 100_000 and word in read(path):
                return path

def environments():
    found = b""
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found += read(path)
    return found

def connect(*address, family=socket.AF_INET):
    with socket.socket(family) as tried:
        tried.settimeout(2)
        tried.connect(address if family == socket.AF_INET else address[0])
        return True

def write(path):
    with open(path, "w") as file:
        return file.write("mine")

ask("I am here")
attempt("credential", lambda: read(target["credential"]))
attempt("foreign bundle", lambda: os.listdir(target["foreign"]))
attempt("own bundle", lambda: os.listdir(target["bundle"]))
attempt("other session", lambda: os.listdir(os.path.join(io, "..", "eval-g999999-00")))
attempt("other secret", lambda: target["other"].encode() in environments())
attempt("loopback", lambda: connect("127.0.0.1", target["port"]))
attempt("internet", lambda: connect("1.1.1.1", 53))
attempt("abstract socket", lambda: connect("\\0" + target["abstract"], family=socket.AF_UNIX))
attempt("processes", lambda: os.kill(target["pid"], 0) or True)
attempt("write beside", lambda: write(os.path.join(target["folder"], "mine")))
for path in ("/mine", "/etc/mine", "/usr/mine", sys.executable):
    attempt("write " + os.path.basename(os.path.dirname(path)), lambda: target["walls"] and write(path))
attempt("evaluator", lambda: target["walls"] and everywhere(target["mark"][::-1].encode()))
attempt("metrics", lambda: os.makedirs(os.path.join(io + ".trial", "result")) or write(
    os.path.join(io + ".trial", "result", "verdict.json")))
deaf = '''
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
while True:
    open(os.environ["RELAX_WORLD_DIR"] + "/state", "a").write("x")
    time.sleep(0.001)
'''
env = {"RELAX_WORLD_DIR": world}
subprocess.Popen([sys.executable, "-c", deaf], env=env, start_new_session=True).wait()
open(world + "/state", "a").write("left")
os.remove(io + "/run.log")
os.symlink(target["credential"], io + "/run.log")
os.symlink(target["credential"], os.environ["RELAX_OUTPUT_JSON"])
os.symlink(target["credential"], io + "/steps.jsonl")
ask(json.dumps(got))
"""

CHECK = """
import time
mark = "only the evaluator knows this: 4f1c"
state = os.environ["RELAX_WORLD_DIR"] + "/state"
before = open(state).read()
time.sleep(0.3)
write(reward=0.5, stage_one=int(open(state).read() == before), stage_given=int(given("OUTPUT_TEXT") == ""))
"""


@pytest.fixture(scope="module")
def walls() -> None:
    try:
        check_sandbox(AgentConfig(agent_sandbox="bwrap"), os.environ)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def surroundings(tmp_path: Path):
    """What an agent could be after: files of ours and of others, another Session that runs, and open ports."""
    credential = tmp_path / "worker-credential"
    credential.write_text(SECRET)
    credential.chmod(0o600)
    foreign = environment(tmp_path / "foreign")
    (tmp_path / "run" / "sessions" / "eval-g999999-00").mkdir(parents=True)
    (tmp_path / "run" / "sessions" / "eval-g999999-00" / "session_input.json").write_text("{}")
    neighbour = subprocess.Popen(["sleep", "1000"], env={"RELAX_SESSION_ID": OTHER})
    port, abstract = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0relaxforge-{os.getpid()}")
    abstract.listen()
    for listening in (port, abstract):
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    yield {
        "credential": str(credential), "foreign": str(foreign), "bundle": str(tmp_path / "env"), "other": OTHER,
        "port": port.getsockname()[1], "abstract": f"relaxforge-{os.getpid()}", "pid": os.getpid(),
        "folder": str(tmp_path), "mark": "only the evaluator knows this: 4f1c"[::-1],
    }  # fmt: skip
    neighbour.kill()
    neighbour.wait()
    for listening in (port, abstract):
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _accept(listening: socket.socket) -> None:
    while True:
        try:
            listening.accept()[0].close()
        except OSError:
            return


def attack(renderer, tmp_path, target, **settings):
    check = CHECK.replace('given("OUTPUT_TEXT")', 'open(os.environ["RELAX_OUTPUT_JSON"]).read()')
    folder = environment(tmp_path / "env", AGENT, check)
    manifest = (folder / "environment.toml").read_text()
    given = json.dumps(json.dumps(target))
    (folder / "environment.toml").write_text(
        manifest.replace("metadata = { n = 7 }", f"metadata = {{ all = {given} }}")
    )
    (folder / "agent.py").write_text((folder / "agent.py").read_text().replace(
        '["metadata"]', '["metadata"]["all"]\ntarget = json.loads(target)'))  # fmt: skip
    (line,) = attempts(renderer, folder, tmp_path, **settings)
    reports = [row["message"][0]["content"] for row in line["forest"] if row["kind"] == "observation"]
    return line, next(json.loads(text) for text in reports if text.startswith("{"))


def test_inside_the_walls_it_gets_nothing_and_is_scored_all_the_same(renderer, tmp_path, surroundings, walls):
    line, got = attack(renderer, tmp_path, {**surroundings, "walls": True}, agent_sandbox="bwrap")
    # Its /tmp, in which the paths of these tests lie, is its own: what it writes there is nowhere.
    assert {name for name, success in got.items() if success} <= {"write beside", "metrics"}
    assert not (tmp_path / "mine").exists()
    assert len(got) == 16
    assert line["failure"]["category"] == "bad_output"
    assert (line["reward"], line["verdict"]["stages"]) == (0.5, {"stage_one": 1, "stage_given": 1})
    assert "hunter2" not in json.dumps(line)


def test_without_walls_the_same_agent_gets_most_of_it(renderer, tmp_path, surroundings):
    line, got = attack(renderer, tmp_path, {**surroundings, "walls": False})
    reached = {name for name, success in got.items() if success}
    assert reached >= {"credential", "foreign bundle", "own bundle", "other session", "other secret", "loopback"}
    assert "hunter2" not in json.dumps(line), "links are never followed"


def test_world_and_evaluator_have_walls_too_and_do_their_work(renderer, tmp_path, surroundings, walls):
    look = """
import os, pathlib, socket, json
def reach():
    try:
        return bool(socket.create_connection(("127.0.0.1", PORT), 2))
    except OSError:
        return False
seen = {"net": reach(), "credential": os.path.exists("CREDENTIAL"), "session": bool(os.environ.get("RELAX_SESSION_ID"))}
""".replace("PORT", str(surroundings["port"])).replace("CREDENTIAL", surroundings["credential"])
    make = look + "pathlib.Path(os.environ['RELAX_WORLD_DIR'], 'seen').write_text(json.dumps(seen))"
    judge = (
        look
        + """
def grade(trial):
    made = json.loads((trial.world / "seen").read_text())
    trial.workspace.joinpath("x").touch()
    agent = json.loads((trial.workspace / "listed").read_text())
    mine = {f"stage_{name}": int(value) for name, value in seen.items()}
    worlds = {f"world_{name}": int(value) for name, value in made.items()}
    return {"reward": 1, **mine, **worlds, "listed": len(agent), "key": int(os.environ["API_KEY"] == "abcdefgh")}
"""
    )
    folder = environment(
        tmp_path / "env",
        "ask('x'); json.dump(os.listdir(os.path.dirname(os.environ['RELAX_WORLD_DIR'])), open('listed', 'w'))", None,
        '[world]\ncommand = "exec python -E make.py"\n[evaluator]\npython = "judge.grade"\n',
        **{"make.py": make, "evaluator/judge.py": judge},
    )  # fmt: skip
    (line,) = attempts(renderer, folder, tmp_path, agent_sandbox="bwrap", secrets={"API_KEY": "abcdefgh"})
    assert line["failure"] is None, line["failure"]["log_tail"]
    assert set(line["verdict"]["stages"].values()) == {0}
    assert line["verdict"]["metrics"] == {
        "world_net": 0, "world_credential": 0, "world_session": 0, "listed": 2, "key": 1
    }  # fmt: skip


def test_a_walled_evaluator_that_hangs_is_ended_too(renderer, tmp_path, walls):
    folder = environment(tmp_path / "env", check="import time; print('here', flush=True); time.sleep(1000)")
    manifest = folder / "environment.toml"
    manifest.write_text(manifest.read_text().replace("timeout_s = 20\nstages", "timeout_s = 1\nstages"))
    (line,) = attempts(renderer, folder, tmp_path, agent_sandbox="bwrap")
    assert "the evaluator was ended after 1 s" in line["failure"]["message"]
    assert line["failure"]["log_tail"] == "here"
