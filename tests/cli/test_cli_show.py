import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from relaxforge.cli import dump
from relaxforge.cli.show import show
from relaxforge.core.errors import ConfigError
from relaxforge.rollout import record


def state(name, parent, message, tokens, logprobs=None, versions=(), **more):
    sampled = logprobs is not None
    return {
        "state": name,
        "parent": parent,
        "kind": "response" if sampled else "observation",
        "message": message,
        "tokens": tokens,
        "logprobs": logprobs,
        "weight_versions": [list(span) for span in versions],
        "finish_reason": "stop" if sampled else None,
        "delivered": True if sampled else None,
        "request_id": "r1",
        **more,
    }


def user(text):
    return [{"role": "user", "content": text}]


def assistant(text):
    return {"role": "assistant", "content": text}


def session(session_id, **fields):
    return {
        "schema_version": 1,
        "run_id": "run",
        "incarnation": 0,
        "rollout_id": 0,
        "group_id": "train-g000000",
        "session_id": session_id,
        "mode": "train",
        "task_index": 0,
        "task": None,
        "seed": 1,
        "status": "completed",
        "failure": None,
        "drop_reason": None,
        "reward": 1.0,
        "duration_s": {"prepare": 0.5, "active": 1.25, "reward": None},
        "turns": 1,
        "forest": [],
        "requests": [],
        "drift": [],
        "samples": [],
        "tokens": {"sampled": 2, "trained": 2, "masked": {}, "undelivered": 0, "repeats": 0},
        **fields,
    }


TWO_TURNS = session(
    "train-g000000-00",
    turns=2,
    reward=0.5,
    forest=[
        state("s1", None, user("What is 2 + 2?"), [1, 2, 3]),
        state("s2", "s1", assistant("5"), [4, 5], [-0.25, -0.75], [(0, 0, 1), (1, 1, 2)]),
        state("s3", "s2", user("That is wrong."), [6]),
        state("s4", "s3", assistant("4"), [7], [-3.5], [(1, 0, 1)]),
        state("s5", "s1", assistant("forked"), [8], [-0.1], [(0, 0, 1)]),
    ],
    samples=[
        {
            "name": None,
            "state": "s4",
            "tokens": [1, 2, 3, 4, 5, 6, 7],
            "prompt_length": 3,
            "response_length": 4,
            "loss_mask": [1, 1, 0, 1],
            "logprobs": [-0.25, -0.75, 0.0, -3.5],
            "weight_versions": [],
            "turns": 2,
            "terminal_status": "completed",
            "reward": 0.5,
            "advantage": 0.7,
            "metadata": {},
        }
    ],
    tokens={"sampled": 4, "trained": 3, "masked": {"not_exported": 1}, "undelivered": 0, "repeats": 0},
)
CRASHED = session(
    "train-g000000-01",
    status="failed",
    reward=None,
    failure={"category": "agent_error", "message": "exit status 3", "log_tail": "Traceback\n\x1b[31mboom"},
    requests=[{"request_id": "r9", "http_status": 400, "error": "context_length_exceeded"}],
    drift=[
        {"request_id": "r9", "message_index": 2, "cause": "rewritten", "excerpt": "abc", "tokens_without_signal": 4}
    ],
    tokens={"sampled": 2, "trained": 0, "masked": {"session_failed": 2}, "undelivered": 0, "repeats": 0},
)


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "rollouts").mkdir()
    write(tmp_path / "rollouts/0.jsonl", TWO_TURNS, CRASHED)
    write(tmp_path / "rollouts/2.jsonl", session("train-g000002-00", rollout_id=2))
    write(tmp_path / "rollouts/10.jsonl", session("train-g000010-00", rollout_id=10, status="dropped"))
    write(tmp_path / "rollouts/eval_sums_0.jsonl", session("eval-g000000-00", mode="eval"))
    return tmp_path


def write(path, *sessions):
    path.write_text("".join(json.dumps(line) + "\n" for line in sessions))


def shown(capsys, *words):
    assert show([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_the_list_has_one_line_per_session_in_the_order_of_the_steps(run_dir, capsys):
    lines = shown(capsys, run_dir).splitlines()
    names = [line.split()[0] for line in lines if line.startswith(("train-", "eval-"))]
    assert names == [
        "train-g000000-00",
        "train-g000000-01",
        "train-g000002-00",
        "train-g000010-00",
        "eval-g000000-00",
    ]
    crashed = next(line for line in lines if line.startswith("train-g000000-01"))
    assert "failed" in crashed
    assert "agent_error" in crashed
    assert lines[-1] == "5 Sessions: 3 completed, 1 failed, 1 dropped"
    assert max(map(len, lines)) <= 80


def test_the_list_shows_the_newest_sessions_that_fit_unless_all_are_asked_for(run_dir, capsys):
    write(run_dir / "rollouts/0.jsonl", *(session(f"train-g{number:06d}-00") for number in range(60)))
    lines = shown(capsys, run_dir).splitlines()
    assert lines[0] == "... 23 earlier Sessions; --all lists them"
    assert len(shown(capsys, run_dir, "--all").splitlines()) == 63 + 2


def test_a_line_that_a_killed_run_left_unfinished_is_skipped(run_dir, capsys):
    with (run_dir / "rollouts/10.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "session_id": "train-g0000')
    assert shown(capsys, run_dir).splitlines()[-1].startswith("5 Sessions")


@pytest.mark.parametrize("damage", [b"junk\n", b"\n", b"[]\n", b"\xff\n", b"\0" * 100 + b"\n", b'{"session_id":"a"}\n'])
def test_a_damaged_line_costs_only_itself_and_is_named(run_dir, capsys, damage):
    path = run_dir / "rollouts/10.jsonl"
    path.write_bytes(damage + path.read_bytes())
    (run_dir / "rollouts/7.jsonl").mkdir()
    assert show([str(run_dir)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("5 Sessions")
    assert said.err.startswith(f"warning: {path}:1 is no Session and is left out")
    assert show([str(run_dir), "train-g000010-00"]) == 0


def test_a_dump_with_nothing_but_damage_is_an_empty_list(tmp_path, capsys):
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts/0.jsonl").write_text("junk\n")
    assert "0 Sessions" in shown(capsys, tmp_path)


def test_the_dump_of_this_release_is_the_one_that_is_read():
    assert dump.SCHEMA_VERSION == record.SCHEMA_VERSION


def test_a_session_of_another_release_is_not_shown_by_guesswork(run_dir):
    write(run_dir / "rollouts/0.jsonl", session("train-g000000-00", schema_version=2))
    with pytest.raises(ConfigError, match="schema_version 2, this one reads 1"):
        show([str(run_dir), "train-g000000-00"])


@pytest.mark.parametrize("text", [b"{{", b"\xff", b'model = "tin'])
def test_a_configuration_that_cannot_be_read_does_not_hide_the_sessions(run_dir, capsys, text):
    (run_dir / "config.toml").write_bytes(text)
    assert show([str(run_dir)]) == 0
    said = capsys.readouterr()
    assert "5 Sessions" in said.out
    assert "config.toml cannot be read" in said.err


def test_a_moved_dump_is_found_through_the_configuration(run_dir, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere/step-0.jsonl", session("train-g000007-00"))
    (run_dir / "config.toml").write_text(f'save_debug_rollout_data = "{tmp_path}/elsewhere/step-{{rollout_id}}.jsonl"')
    assert "train-g000007-00" in shown(capsys, run_dir)


def test_a_session_is_shown_token_by_token(run_dir, capsys):
    text = shown(capsys, run_dir, "train-g000000-00")
    assert "train-g000000-00  step 0  train  completed  reward 0.5" in text
    assert "sampled tokens: 4 = trained 3 + masked 1 not_exported + undelivered 0" in text
    assert "user: What is 2 + 2?" in text
    assert "context (implicit): reward 0.5, advantage 0.7" in text
    for cell in ("4 -0.25 mask 1 v0", "5 -0.75 mask 1 v1", "7 -3.50 mask 1 v1"):
        assert cell in text


def test_branches_that_nobody_exported_are_shown_without_repeating_what_they_share(run_dir, capsys):
    text = shown(capsys, run_dir, "train-g000000-00")
    rest = text[text.index("not exported: ends at state s5") :]
    assert "state s1: as above" in rest
    assert "8 -0.10 mask 0 v0" in rest
    assert text.count("What is 2 + 2?") == 1


def test_a_failed_session_shows_why_and_cannot_drive_the_terminal(run_dir, capsys):
    text = shown(capsys, run_dir, "train-g000000-01")
    assert "agent_error: exit status 3" in text
    assert "␛[31mboom" in text
    assert "\x1b[31mboom" not in text
    assert "r9: 400 context_length_exceeded" in text
    assert "drift in r9: rewritten: abc" in text


@pytest.mark.parametrize("place", ["checkpoints/step_1", "model", "cache/relaxforge/models/tiny-1"])
def test_tokens_are_text_where_a_tokenizer_is_at_hand(run_dir, capsys, monkeypatch, place):
    monkeypatch.setenv("XDG_CACHE_HOME", str(run_dir / "cache"))
    model = run_dir / "model" if place == "model" else "tiny"
    (run_dir / "config.toml").write_text(f'model = "{model}"\n')
    folder = run_dir / place
    folder.mkdir(parents=True)
    words = {"[UNK]": 0, "five": 4, "end": 5, "four": 7}
    Tokenizer(WordLevel(words, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    text = shown(capsys, run_dir, "train-g000000-00")
    assert "five -0.25 mask 1 v0" in text


def test_an_unknown_session_or_folder_is_a_mistake(run_dir, tmp_path):
    with pytest.raises(ConfigError, match="has no Session train-g000000-0; did you mean train-g000000-0"):
        show([str(run_dir), "train-g000000-0"])
    with pytest.raises(ConfigError, match="no such run folder"):
        show([str(tmp_path / "nothing")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no finished Session yet"):
        show([str(tmp_path / "empty")])
