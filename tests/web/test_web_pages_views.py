"""What pages make of rows, without a browser or a database."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.evidence import TrajectoryStep
from relaxforge.export.trajectory import trajectory_file
from relaxforge.web.pages.agent_text import fold, visible, whole
from relaxforge.web.pages.charts import line_chart, phases, segments, ticks
from relaxforge.web.pages.configuration_form import Configuration
from relaxforge.web.pages.forest import tree_of, turns_of
from relaxforge.web.pages.outcome import best_and_worst, failures_first, outcome, shown
from relaxforge.web.pages.sign_in import _own_page
from relaxforge.web.pages.training import choose_curves, points
from relaxforge.web.pages.trajectory import PAGE_SIZE, compare, find, page_start, read_trajectory, step_page
from relaxforge.web.pages.upload import packed


def trial(status="completed", reward=None, category=None, **more):
    place = {"task_index": 0, "attempt_no": 1, "retry_index": 0, "trial_number": 1, "training_run_id": None}
    return {"id": uuid4(), "status": status, "reward": reward, "failure_category": category, **place, **more}


def trail(*commands):
    return [TrajectoryStep(number, "bash", command, f"saw {number}") for number, command in enumerate(commands, 1)]


@pytest.mark.parametrize(
    ("row", "word", "short"),
    [
        (trial("created"), "waiting", "waiting"),
        (trial("running", phase="agent"), "running", "agent"),
        (trial(reward=1.0), "passed", "1"),
        (trial(reward=0.15, category="partial"), "partial", "0.15"),
        (trial("failed", 0.0, "agent_timeout"), "failed", "0"),
        (trial("failed", None, "worker_lost"), "infrastructure", "worker_lost"),
        (trial(reward_status="out_of_range", raw_reward="1.2"), "unscored", "no score"),
    ],
)
def test_an_outcome_is_a_word_and_what_was_scored(row, word, short):
    assert (outcome(row).word, outcome(row).short) == (word, short)


def test_the_threshold_of_the_run_decides_what_passed():
    assert outcome(trial(reward=0.5), 0.5).word == "passed"
    assert outcome(trial(reward=0.5, pass_threshold=0.5)).word == "passed"
    assert outcome(trial(reward=0.5, pass_threshold=None)).word == "partial"


def test_failures_come_first_and_then_by_task_and_attempt():
    rows = [
        trial(reward=1.0, attempt_no=1),
        trial(reward=0.0, attempt_no=3),
        trial(reward=0.0, attempt_no=2),
        trial("failed", None, "env_setup"),
        trial(reward=0.4),
    ]
    words = [(each.outcome.word, each.row["attempt_no"]) for each in failures_first([shown(row) for row in rows])]
    assert words == [("failed", 2), ("failed", 3), ("partial", 1), ("infrastructure", 1), ("passed", 1)]


def test_best_and_worst_are_the_extremes_of_the_scored_ones():
    rows = [trial(reward=0.2), trial(), trial(reward=1.0), trial("running"), trial(reward=0.0), trial(reward=1.0)]
    assert best_and_worst(rows) == (rows[2], rows[4])
    assert best_and_worst(rows[:2]) == (rows[0], rows[1])
    equal = [trial(reward=1.0), trial(reward=1.0)]
    assert best_and_worst(equal) == tuple(equal)
    assert best_and_worst([trial("running"), trial()]) is None


@given(st.text())
def test_no_control_or_bidirectional_character_reaches_a_page(text):
    shown_text = visible(text)
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in shown_text)
    assert not set(shown_text) & set("\x7f\x1b\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200f\ufeff")


def test_colours_are_dropped_and_other_escapes_are_shown():
    assert visible("\x1b[1;31mred\x1b[0m") == "red"
    assert visible("\x1b[2J\x1b]0;x\x07") == "⟨ESC⟩[2J⟨ESC⟩]0;x⟨BEL⟩"
    assert visible("a\r\nb\rc") == "a\nb⟨CR⟩c"
    assert visible("zero\u200bwidth \u202etxt") == "zero⟨U+200B⟩width ⟨U+202E⟩txt"


def test_only_long_text_is_folded_and_the_rest_is_counted():
    assert fold("short").hidden == 0
    assert fold("line\n" * 16).hidden == 0  # Two more lines are not worth a button.
    many = fold("line\n" * 400)
    assert (many.total, many.hidden) == (2000, 2000 - len("line\n" * 14) + 1)
    wide = fold("x" * 10_000)
    assert len(wide.text) + wide.hidden == 10_000
    assert whole("x" * 1_500_000).hidden == 500_000


def test_steps_come_in_the_pages_that_links_point_to():
    steps = trail(*map(str, range(1, 121)))
    page = step_page(steps, page_start(101))
    assert [step.step for step in page.steps] == list(range(101, 121))
    assert (page.earlier, page.later) == (51, None)
    first = step_page(steps, 1)
    assert (len(first.steps), first.earlier, first.later) == (PAGE_SIZE, None, 51)
    assert step_page([], 1).total == 0


def test_the_artifact_is_read_back_and_a_damaged_one_says_so():
    steps = trail("ls", "cat a")
    read = read_trajectory(trajectory_file("the log", steps))
    assert (list(read.steps), read.log, read.damaged) == (steps, "the log", None)
    for body in (b"", b"[]", b'{"log": "x", "trajectory": "{"}', b'{"log": "x", "trajectory": "{\\"steps\\": [1]}"}'):
        assert read_trajectory(body).damaged


def test_a_search_finds_every_step_without_regard_to_case_and_says_where():
    hits, total = find(trail("grep a.b", "GREP A.B", "grep aXb"), "a.b")
    assert total == 2
    assert [(hit.step, hit.where, hit.match) for hit in hits] == [(1, "command", "a.b"), (2, "command", "A.B")]
    assert find(trail("x"), "") == ([], 0)
    assert find(trail("straße"), "STRASSE") == ([], 0)


def test_many_hits_are_counted_but_not_all_shown():
    hits, total = find(trail(*["same"] * 500), "same")
    assert (len(hits), total) == (200, 500)


def test_a_comparison_names_the_first_step_that_differs_in_deed_and_in_sight():
    left, right = trail("a", "b", "c", "d"), trail("a", "b", "x")
    right[1] = TrajectoryStep(2, "bash", "b", "saw something else")
    compared = compare(left, right)
    assert [pair.likeness for pair in compared.pairs] == ["same", "observation", "action", "left"]
    assert (compared.divergence, compared.observation, compared.action) == (2, 2, 3)
    assert compare(left, left).divergence is None
    assert compare([], []).pairs == []


def test_another_message_is_another_action_though_it_stands_in_the_observation():
    one, other = [TrajectoryStep(1, "message", "", "stock")], [TrajectoryStep(1, "message", "", "done")]
    assert compare(one, other).action == 1


def test_a_gap_in_a_curve_is_not_a_zero():
    chart = line_chart("Reward", {"reward": [(0, 0.5), (1, None), (2, 1.0)], "nothing": [(0, None)]})
    assert [curve.name for curve in chart.curves] == ["reward"]
    assert len(chart.curves[0].points) == 2
    assert "reward from 0.5 at 0 to 1 at 2" in chart.summary
    assert line_chart("Reward", {}).curves == ()


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_curves_stay_inside_their_chart(values):
    chart = line_chart("x", {"x": list(enumerate(values))})
    for x, y in chart.curves[0].points:
        assert chart.left - 1 <= x <= chart.right + 1
        assert 0 <= y <= chart.bottom + 1


def test_ticks_are_round_and_span_the_values():
    assert ticks(0, 0.93) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 3, whole=True) == [0, 1, 2, 3]
    assert ticks(5, 5) == [5]


def test_a_long_curve_keeps_its_ends_and_loses_points_between():
    chart = line_chart("x", {"x": [(step, float(step)) for step in range(10_000)]})
    assert chart.curves[0].path.count("L") <= 400
    assert chart.curves[0].last == "9,999"


def test_phases_that_are_parts_of_others_are_taken_apart():
    seconds = phases(
        {"reward": 1.0, "active": 10.0, "generation": 4.0, "prepare": 2.0, "world": 0.5, "wait": 0.001, "other": 1.0}
    )
    assert seconds == {"prepare": 1.5, "world": 0.5, "model": 4.0, "agent": 6.0, "reward": 1.0, "other": 1.0}
    assert [segment.name for segment in segments(seconds)] == list(seconds)
    assert sum(segment.length for segment in segments(seconds)) == pytest.approx(100, abs=0.01)


def state(name, parent, kind="response", **more):
    message = {"role": "assistant", "content": f"said {name}"}
    return {"state": name, "parent": parent, "kind": kind, "message": message, "tokens": [1, 2], **more}


def test_a_tree_is_deeper_only_where_conversations_part():
    forest = [state("a", None), state("b", "a"), state("c", "b"), state("d", "b"), state("e", "d"), state("f", None)]
    nodes, total = tree_of({"forest": forest, "samples": [{"state": "e", "name": "main"}]})
    assert total == 6
    assert [(node.state, node.depth, node.branch) for node in nodes] == [
        ("a", 1, 1), ("b", 1, 0), ("c", 2, 1), ("d", 2, 2), ("e", 2, 0), ("f", 1, 2),
    ]  # fmt: skip
    assert [node.sample for node in nodes if node.sample] == ["main"]


def test_a_conversation_of_thousands_of_turns_is_walked_without_recursion():
    forest = [state(str(turn), str(turn - 1) if turn else None) for turn in range(5000)]
    nodes, total = tree_of({"forest": forest})
    assert (len(nodes), total) == (1000, 5000)
    assert {node.depth for node in nodes} == {0}


def test_turns_have_tokens_and_time_and_say_what_is_not_known():
    forest = [state("o", None, "observation"), state("r", "o", finish_reason="stop", weight_versions=[[3, 0, 2]])]
    good = {"request_id": "1", "api": "chat", "state": "r", "http_status": 200, "timing": {"generation_s": 0.5}}
    refused = {"request_id": "2", "api": "chat", "state": None, "http_status": 413, "error": "too many tokens"}
    first, second = turns_of({"forest": forest, "requests": [good, refused]})
    assert (first.observed, first.sampled, first.finish, first.versions, first.generation_s) == (2, 2, "stop", "3", 0.5)
    assert (second.sampled, second.http_status, second.error) == (None, 413, "too many tokens")


def test_failures_that_a_step_does_not_count_are_none_but_what_it_does_not_report_is_missing():
    rows = [
        {"step": 0, "metrics": {"rollout/sessions/completed": 8, "rollout/failures/agent_error": None}},
        {"step": 1, "metrics": {"rollout/sessions/completed": 6, "rollout/failures/agent_error": 2}},
        {"step": 2, "metrics": {"rollout/sessions/completed": None}},
    ]
    assert points(rows, "rollout/failures/agent_error") == [(0, 0.0), (1, 2.0)]
    assert points(rows, "rollout/raw_reward") == []


def test_curves_are_chosen_from_what_was_measured():
    known = ["eval/shop/reward", "rollout/raw_reward", "train/loss", "rollout/response_length/mean"]
    chosen = choose_curves(known)
    assert chosen["Reward"] == ["rollout/raw_reward", "eval/shop/reward"]
    assert chosen["Response length, tokens"] == ["rollout/response_length/mean"]
    assert chosen["Pass rate"] == []


def test_the_form_of_a_configuration_becomes_the_body_of_the_api():
    identity = uuid4()
    hosted = Configuration(
        name="n", engine="upstream", model="m", base_url=" https://models.example.org/v1 ", api_key_secret="KEY",
        timeout_s="90", max_context_tokens="x",
    ).asked(identity)  # fmt: skip
    upstream = {"baseUrl": "https://models.example.org/v1", "model": "m", "apiKeySecret": "KEY"}
    assert hosted["model"] == {"upstream": upstream}
    assert hosted["budget"] == {"timeoutS": 90, "maxContextTokens": "x"}
    scripted = Configuration(engine="scripted", model="", replies="replies.jsonl").asked(identity)
    assert scripted["model"] == {"engine": "scripted", "replies": "replies.jsonl"}
    forgotten = Configuration(engine="local", replies="replies.jsonl").asked(identity)
    assert forgotten["model"]["replies"] == "replies.jsonl", "the API refuses it; nothing is dropped in silence"
    assert json.dumps(scripted)


def test_a_folder_from_a_browser_is_packed_without_its_own_name_and_leftovers():
    files = [("shop/environment.toml", b"x"), ("shop/a/b.py", b"y"), ("shop/.git/config", b"z")]
    with tarfile.open(fileobj=BytesIO(packed(files))) as archive:
        assert archive.getnames() == ["environment.toml", "a/b.py"]


@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        ("/trials?category=partial", "/trials?category=partial"),
        ("", "/environments"),
        ("//evil.example", "/environments"),
        ("/\\evil.example", "/environments"),
        ("https://evil.example", "/environments"),
        ("/api/v1/me", "/environments"),
        ("/x\r\nSet-Cookie: a=b", "/environments"),
    ],
)
def test_signing_in_leads_to_our_own_pages_only(wanted, target):
    assert _own_page(wanted) == target
