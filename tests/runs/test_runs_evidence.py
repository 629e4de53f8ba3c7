"""What is sent of a run: each line once and whole, in the face of everything that files and workspaces do."""

import json
import shutil
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import uuid4

import pytest

from relaxforge.core.errors import ConfigError
from relaxforge.core.evidence import TrainingRunCard
from relaxforge.runs import evidence_feed, workspaces
from relaxforge.runs.evidence_feed import EvidenceFeed
from relaxforge.runs.run_files import RunFiles
from relaxforge.runs.sent import Sent, source_key
from relaxforge.runs.workspaces import DatabaseWorkspace, HttpWorkspace, WorkspaceAway, WorkspaceRefusal

SECRET = "correct-horse-battery"


def dump_line(number, *, status="completed", failure=None, **values):
    group = f"train-g{number:06d}"
    line = {
        "schema_version": 1, "session_id": f"{group}-03", "group_id": group, "rollout_id": number, "mode": "train",
        "task_index": number, "seed": number, "status": status, "failure": failure, "reward": 0.5,
        "reward_detail": 0.5, "duration_s": {"active": 1.0}, "turns": 0, "forest": [], "requests": [], "samples": [],
    }  # fmt: skip
    return json.dumps(line | values).encode() + b"\n"


def metrics_line(step, incarnation=0):
    row = {"kind": "step", "rollout_id": step, "incarnation": incarnation, "time": "now", "rollout/raw_reward": 0.5}
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.toml").write_text(f'model = "tiny"\nagent_env = ["A={SECRET}"]\n')
    return folder


def write(run_dir, name, *lines):
    with (run_dir / "rollouts" / name).open("ab") as file:
        file.writelines(lines)


class Kept:
    """A workspace in memory. It keeps what it is told, however often; ``away`` and ``refused`` make it fail."""

    name = "a workspace"

    def __init__(self):
        self.cards = []
        self.sessions = []
        self.steps = []
        self.away = False
        self.refused = set()
        self.identity = "1"

    def record(self, card):
        self._check()
        self.cards.append(card)
        return self.identity

    def add_sessions(self, sessions):
        self._check()
        if self.refused & {session.session_key for session in sessions}:
            raise WorkspaceRefusal("never")
        self.sessions += sessions

    def add_steps(self, steps):
        self._check()
        self.steps += steps

    def close(self):
        pass

    def _check(self):
        if self.away:
            raise WorkspaceAway("away")

    @property
    def keys(self):
        return [session.session_key for session in self.sessions]


@pytest.fixture
def kept():
    return Kept()


def send(run_dir, kept, secrets=()):
    feed = EvidenceFeed(run_dir, kept, secrets)
    while feed.advance():
        pass
    return feed


def test_every_line_is_sent_once_in_the_order_of_the_steps(run_dir, kept):
    for number in (10, 9, 2):
        write(run_dir, f"{number}.jsonl", dump_line(number))
    write(run_dir, "eval_held-out_2.jsonl", dump_line(100, mode="eval", rollout_id=2))
    (run_dir / "metrics.jsonl").write_bytes(metrics_line(0) + metrics_line(1))
    feed = send(run_dir, kept)
    assert kept.keys == [f"train-g{number:06d}-03" for number in (100, 2, 9, 10)]
    assert [(step.step, step.metrics) for step in kept.steps] == [(n, {"rollout/raw_reward": 0.5}) for n in (0, 1)]
    assert feed.unsent == 0
    write(run_dir, "2.jsonl", dump_line(3))
    assert EvidenceFeed(run_dir, kept, ()).unsent == 1
    send(run_dir, kept)
    assert kept.keys[4:] == ["train-g000003-03"]
    session = kept.sessions[-1]
    assert (session.group_key, session.attempt_no, session.rollout_step, session.seed) == ("train-g000003", 4, 3, 3)


def test_a_line_without_an_end_waits_for_it(run_dir, kept):
    line = dump_line(1)
    write(run_dir, "0.jsonl", dump_line(0), line[:40])
    assert send(run_dir, kept).unsent == 0
    assert len(kept.sessions) == 1
    write(run_dir, "0.jsonl", line[40:])
    send(run_dir, kept)
    assert kept.keys == ["train-g000000-03", "train-g000001-03"]


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b"[]\n", b'{"session_id": "x"}\n', b"\xff\xfe\n", b"\n"])
def test_a_damaged_line_costs_only_itself_and_is_named(run_dir, kept, damage):
    write(run_dir, "0.jsonl", dump_line(0), damage, dump_line(1))
    (run_dir / "metrics.jsonl").write_bytes(metrics_line(0) + damage + metrics_line(1))
    feed = send(run_dir, kept)
    assert (len(kept.sessions), len(kept.steps)) == (2, 2)
    assert feed.sent.refused == ("a damaged line of rollouts/0.jsonl", "a damaged line of metrics.jsonl")
    assert feed.unsent == 0


def test_what_a_workspace_refuses_is_left_out_and_named(run_dir, kept):
    write(run_dir, "0.jsonl", *(dump_line(number) for number in range(5)))
    kept.refused = {"train-g000001-03", "train-g000004-03"}
    feed = send(run_dir, kept)
    assert sorted(kept.keys) == [f"train-g00000{number}-03" for number in (0, 2, 3)]
    assert set(feed.sent.refused) == kept.refused
    assert feed.unsent == 0


def test_a_workspace_that_is_away_gets_the_same_batch_later(run_dir, kept):
    feed = EvidenceFeed(run_dir, kept, ())
    assert not feed.advance()
    write(run_dir, "0.jsonl", dump_line(0))
    kept.away = True
    for _ in range(2):
        with pytest.raises(WorkspaceAway):
            feed.advance()
        feed.again()
    assert feed.unsent == 1
    kept.away = False
    assert feed.advance()
    assert len(kept.sessions) == 1
    assert len({card.source_key for card in kept.cards}) == 1


def test_a_workspace_that_has_lost_everything_gets_everything_again(run_dir, kept):
    write(run_dir, "0.jsonl", dump_line(0))
    send(run_dir, kept)
    send(run_dir, kept)
    assert len(kept.sessions) == 1
    kept.identity = "2"
    send(run_dir, kept)
    assert len(kept.sessions) == 2


def test_a_lost_or_damaged_memory_of_places_sends_everything_again(run_dir, kept):
    write(run_dir, "0.jsonl", dump_line(0))
    for number in range(3):
        send(run_dir, kept)
        [memory] = (run_dir / "workspace").glob("*.json")
        memory.write_bytes(b"{" * number)
    assert len(kept.sessions) == 3
    assert len({card.source_key for card in kept.cards}) == 1


def test_a_run_keeps_its_name_when_its_folder_is_moved(run_dir, kept, tmp_path):
    write(run_dir, "0.jsonl", dump_line(0))
    (run_dir / "metrics.jsonl").write_bytes(metrics_line(0))
    send(run_dir, kept)
    key = source_key(run_dir)
    shutil.move(run_dir, tmp_path / "elsewhere")
    send(tmp_path / "elsewhere", kept)
    assert source_key(tmp_path / "elsewhere") == key
    assert (len(kept.sessions), len(kept.steps)) == (1, 1)


def test_secrets_leave_neither_with_sessions_nor_with_the_configuration(run_dir, kept):
    failure = {"category": "agent_error", "message": f"with {SECRET}", "log_tail": f"said {SECRET}"}
    write(run_dir, "0.jsonl", dump_line(0, status="failed", failure=failure))
    folder = run_dir / "sessions" / "train-g000001-03"
    folder.mkdir(parents=True)
    (folder / "run.log").write_text(f"whole output {SECRET}\n")
    write(run_dir, "0.jsonl", dump_line(1, status="failed", failure=failure))
    send(run_dir, kept, [SECRET])
    assert kept.cards[0].configuration == {"model": "tiny", "agent_env": ["A=[redacted]"]}
    logs = [json.loads(session.evidence.trajectory)["log"] for session in kept.sessions]
    assert logs == ["said [redacted]", "whole output [redacted]\n"]
    assert all(SECRET.encode() not in session.evidence.session for session in kept.sessions)
    assert kept.sessions[0].evidence.failure_message == "with [redacted]"


def test_a_session_that_is_too_large_is_sent_without_its_dump_line(run_dir, kept, monkeypatch):
    write(run_dir, "0.jsonl", dump_line(0), dump_line(1, metadata="x" * 2000))
    monkeypatch.setattr(evidence_feed, "LARGEST_SESSION_BYTES", 1500)
    send(run_dir, kept)
    assert [bool(session.evidence.session) for session in kept.sessions] == [True, False]
    assert all(session.evidence.trajectory for session in kept.sessions)


def test_dumps_that_a_run_puts_elsewhere_are_found(run_dir, kept, tmp_path):
    (tmp_path / "dump").mkdir()
    pattern = tmp_path / "dump" / "{rollout_id}-x.jsonl"
    (run_dir / "config-1.toml").write_text(f'save_debug_rollout_data = "{pattern}"\n')
    write(run_dir, "0.jsonl", dump_line(0))
    (tmp_path / "dump" / "1-x.jsonl").write_bytes(dump_line(1))
    assert send(run_dir, kept).unsent == 0
    assert sorted(kept.keys) == ["train-g000000-03", "train-g000001-03"]


def test_one_sender_at_a_time(run_dir):
    with Sent(run_dir, "w").alone():
        with pytest.raises(ConfigError, match="another process sends"), Sent(run_dir, "w").alone():
            pytest.fail("two senders")
        with Sent(run_dir, "another").alone():
            pass


def test_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(ConfigError, match="is no run directory"):
        RunFiles(tmp_path)


@pytest.fixture
def answering():
    """A server that answers every POST with one status and body; its URL, and what it was asked."""
    servers = []

    def start(status, body=b"{}", headers=()):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                asked.append((self.path, self.headers["authorization"]))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


CARD = TrainingRunCard("key", "run")


@pytest.mark.parametrize(
    ("status", "body", "kind", "closed"),
    [
        (500, b"oops", WorkspaceAway, False),
        (503, b'{"detail": "busy"}', WorkspaceAway, False),
        (429, b'{"detail": "slower"}', WorkspaceAway, False),
        (401, b'{"detail": "who"}', WorkspaceAway, True),
        (404, b"nothing here", WorkspaceAway, True),
        (302, b"", WorkspaceAway, True),
        (200, b"<html>", WorkspaceAway, False),
        (200, b"[]", WorkspaceAway, True),
        (413, b'{"detail": "too large"}', WorkspaceRefusal, None),
        (422, b'{"detail": "sessions[0].seed"}', WorkspaceRefusal, None),
    ],
)
def test_an_answer_says_whether_to_try_again(answering, status, body, kind, closed):
    url, asked = answering(status, body, [("Location", "/elsewhere")] if status == 302 else ())
    workspace = HttpWorkspace(url, "token")
    with pytest.raises(kind) as caught:
        workspace.record(CARD)
    assert getattr(caught.value, "closed", None) is closed
    assert asked == [("/api/v1/training-runs", "Bearer token")]
    workspace.close()


def test_a_workspace_that_nobody_serves_is_away():
    with pytest.raises(WorkspaceAway, match="cannot be reached") as caught:
        HttpWorkspace("http://127.0.0.1:9", "token").record(CARD)
    assert not caught.value.closed


def test_a_database_that_is_not_there_is_away(monkeypatch):
    monkeypatch.setattr(workspaces, "CONNECT_S", 0.3)
    workspace = DatabaseWorkspace("postgresql://relaxforge_app:secret@127.0.0.1:9/workspace", uuid4())
    with closing(workspace), pytest.raises(WorkspaceAway, match="cannot be reached") as caught:
        workspace.record(CARD)
    assert not caught.value.closed
    assert workspace.name.startswith("127.0.0.1:9/workspace (organization ")


def test_a_login_that_could_see_other_organizations_is_not_used(database_urls, two_organizations):
    workspace = DatabaseWorkspace(database_urls["admin"], two_organizations.a.organization_id)
    with closing(workspace), pytest.raises(WorkspaceAway, match="is a superuser") as caught:
        workspace.record(CARD)
    assert caught.value.closed


def test_an_organization_that_does_not_exist_gets_nothing(database_urls):
    workspace = DatabaseWorkspace(database_urls["app"], uuid4())
    with closing(workspace), pytest.raises(WorkspaceAway) as caught:
        workspace.record(CARD)
    assert caught.value.closed
