"""What is kept of an attempt: cleaned, redacted, bounded, and judged by one rule."""

import json
import os

import pytest
from export_parts import Forest, call, dump, result, said, shop, user
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.evidence import Verdict
from relaxforge.core.text import Cleaner, shorten
from relaxforge.export.evidence import evidence_of
from relaxforge.export.log import Log, read_log

SECRET = "sk-live-0123456789"


def failed(category, **changes):
    return dump(status="failed", failure={"category": category, "message": "m", "log_tail": ""}, **changes)


def test_evidence_of_a_sound_session():
    forest, last = shop()
    line = dump(forest, exported=last, reward=0.15, reward_detail={"reward": 0.15}, verdict={
        "reward_status": "scored", "raw_reward": "0.15", "stages": {"stage_inventory": 1, "stage_checkout": 0},
        "metrics": {"seconds": 2.5}, "failure_category": "wrong_result",
    })  # fmt: skip
    kept = evidence_of(line, Log.of("opened admin-console\n"))
    assert kept.status == "completed"
    assert kept.verdict == Verdict(
        0.15, "scored", "0.15", {"stage_inventory": 1, "stage_checkout": 0}, {"seconds": 2.5}, "wrong_result"
    )
    assert (kept.step_count, kept.turns, kept.log_truncated, kept.failure_message) == (3, 3, False, None)
    assert kept.duration_s == pytest.approx(2.75)
    assert json.loads(kept.trajectory)["log"] == "opened admin-console\n"
    assert [state["tokens"] for state in json.loads(kept.session)["forest"]] == [s["tokens"] for s in forest.states]
    assert kept.sanitised == {}


@pytest.mark.parametrize(
    ("line", "reward", "status"),
    [
        (dump(reward=1), 1.0, "scored"),
        (dump(reward=0.0), 0.0, "scored"),
        (dump(), None, "not_scored"),
        (dump(reward=1.2), None, "out_of_range"),
        (dump(reward=-0.1), None, "out_of_range"),
        (dump(verdict={"reward_status": "out_of_range", "raw_reward": "1.2"}), None, "out_of_range"),
        (failed("agent_timeout"), 0.0, "scored"),
        (failed("agent_error", reward=0.4), 0.4, "scored"),
        (failed("agent_error", mode="train"), None, "not_scored"),
        (failed("provider_error"), None, "not_scored"),
        (failed("verifier_error", reward=0.5), None, "not_scored"),
        (failed("worker_lost"), None, "not_scored"),
    ],
)
def test_rewards_are_in_range_or_null_and_only_our_own_failures_never_count(line, reward, status):
    verdict = evidence_of(line, Log.of("")).verdict
    assert (verdict.reward, verdict.reward_status) == (reward, status)


def test_the_category_is_the_evaluators_word_else_the_sessions_and_ours_always():
    def category(line):
        return evidence_of(line, Log.of("")).verdict.failure_category

    written = {"failure_category": "partial"}
    assert category(dump(verdict=written)) == "partial"
    assert category(failed("agent_timeout", verdict=written)) == "partial"
    assert category(failed("agent_timeout")) == "agent_timeout"
    assert category(failed("verifier_error", verdict=written)) == "verifier_error"
    assert category(dump(reward=0.0)) is None
    assert evidence_of(failed("agent_timeout"), Log.of("")).failure_message == "m"


def test_the_written_reward_is_kept_as_it_stood_there():
    kept = evidence_of(dump(reward=1.2, reward_detail={"reward": 1.2, "speed": 3}), Log.of(""))
    assert json.loads(kept.verdict.raw_reward) == {"reward": 1.2, "speed": 3}


def test_tokens_are_what_the_provider_counted_else_what_the_forest_holds():
    forest = Forest()
    first = forest.turn(None, [user("a")], said("b"))
    forest.turn(first, [user("c")], said("d"))
    kept = evidence_of(dump(forest), Log.of(""))
    assert (kept.prompt_tokens, kept.completion_tokens) == (3 + 8, 4)
    requests = [{"usage": {"prompt_tokens": 100, "completion_tokens": 20}}, {"usage": None}]
    kept = evidence_of(dump(forest, requests=requests), Log.of(""))
    assert (kept.prompt_tokens, kept.completion_tokens) == (100, 20)


def test_nul_and_lone_surrogates_are_replaced_and_counted_and_terminal_codes_are_text():
    forest = Forest()
    asked = forest.turn(None, [user("go")], said(None, call("a", "sh", '{"command":"cat \\u0000"}')))
    forest.turn(asked, [result("a", "\x1b[31mred\x1b[0m \0 \ud800 \ud83d\ude00 <script>")], said("ok"))
    kept = evidence_of(dump(forest), Log.of("log \0 \ud800"))
    steps = json.loads(json.loads(kept.trajectory)["trajectory"])["steps"]
    assert steps[0]["observation"] == "\x1b[31mred\x1b[0m \ufffd \ufffd 😀 <script>"
    assert json.loads(kept.trajectory)["log"] == "log \ufffd \ufffd\ufffd\ufffd"
    assert kept.sanitised["nul"] >= 2
    assert kept.sanitised["surrogate"] == 1
    for stored in (kept.trajectory, kept.session):
        assert "\0" not in json.dumps(json.loads(stored), ensure_ascii=False)


def test_known_secrets_are_nowhere_in_what_is_stored():
    forest = Forest()
    asked = forest.turn(None, [user("go")], said(None, call("a", "curl", json.dumps({"command": f"-H {SECRET}"}))))
    forest.turn(asked, [result("a", f'{{"key": "{SECRET}"}}')], said("done"))
    line = dump(forest, exported="s4", metadata={"note": [SECRET], SECRET: 1}, steps=[{"tool": SECRET}])
    kept = evidence_of(line, Log.of(f"using {SECRET}\n"), secrets=[SECRET, "short"])
    assert SECRET.encode() not in kept.trajectory + kept.session
    states = {state["state"]: state for state in json.loads(kept.session)["forest"]}
    assert states["s2"]["tokens"] == [] == states["s3"]["tokens"], "their ids would spell the secret"
    assert states["s1"]["tokens"] == [1, 2, 3]
    assert [sample["tokens"] for sample in json.loads(kept.session)["samples"]] == [[]]
    assert kept.sanitised["secret"] >= 5


def test_redaction_knows_longest_first_escaped_spellings_and_leaves_numbers_alone():
    cleaner = Cleaner(["password", "password-long", 'quo"te\nline', "12345678"])
    assert cleaner.text("x password-long y password z") == "x [redacted] y [redacted] z"
    assert cleaner.text(r"{\"k\": \"quo\"te\nline\"}") == r"{\"k\": \"[redacted]\"}"
    assert cleaner.text("pin 12345678, order 9123456780, price 0.12345678") == (
        "pin [redacted], order 9123456780, price 0.12345678"
    )
    assert cleaner.value({"pin": 12345678, "n": [12345678, "12345678"]}) == {
        "pin": 12345678,
        "n": [12345678, "[redacted]"],
    }


def test_a_value_of_seven_characters_is_no_secret():
    assert Cleaner(["1234567"]).text("1234567") == "1234567"


@given(text=st.text(), limit=st.integers(0, 300))
def test_a_shortened_text_is_within_its_bytes_and_ends_on_whole_characters(text, limit):
    short, left_out = shorten(text, limit)
    assert len(short.encode()) <= limit
    assert "\ufffd" not in short or "\ufffd" in text
    assert left_out == 0 or len(text.encode()) > limit
    if left_out == 0:
        assert short == text


def test_head_and_tail_of_a_long_text_are_kept_around_a_gap_that_is_counted():
    short, left_out = shorten("start" + "é" * 10_000 + "end", 200)
    assert short.startswith("startéé")
    assert short.endswith("ééend")
    assert f"[... {left_out} bytes left out ...]" in short


def test_a_log_of_two_hundred_megabytes_is_cut_without_being_read(tmp_path):
    path = tmp_path / "run.log"
    with path.open("wb") as file:
        file.write(b"first line\n")
        file.truncate(200 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast line\n")
    log = read_log(path, 10_000)
    assert len(log.head) + len(log.tail) < 1_000_000
    kept = evidence_of(dump(), log, log_limit_bytes=10_000)
    text = json.loads(kept.trajectory)["log"]
    assert text.startswith("first line\n")
    assert text.endswith("\nlast line\n")
    assert len(text.encode()) <= 10_000
    assert kept.log_truncated


def test_no_cut_leaves_half_a_secret(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(SECRET * 60_000)
    for limit in range(1_000, 1_060):
        text, missing = read_log(path, limit).within(limit, Cleaner([SECRET]))
        assert missing
        assert "sk-l" not in text
        assert "6789" not in text


def test_a_log_that_is_no_file_is_a_note(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link", "missing"):
        assert read_log(tmp_path / name).head.startswith(b"(no log: ")


def test_a_log_that_is_not_utf_8_is_kept_with_replacements():
    kept = evidence_of(dump(), Log(b"caf\xe9 \xff ok"))
    assert json.loads(kept.trajectory)["log"] == "caf\ufffd \ufffd ok"
    assert kept.sanitised == {"bytes": 2}
