"""The lines of the default export, byte for byte, and what a reader of whole files may count on."""

import json
from datetime import datetime, timedelta, timezone

import atif
import pytest
from export_parts import Forest, call, dump, result, said, shop, stored, user
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.text import Cleaner
from relaxforge.export.atif import atif_line
from relaxforge.export.errors import SelectionError
from relaxforge.export.evidence import evidence_of
from relaxforge.export.kinds import FORMATS, KINDS, choose
from relaxforge.export.lines import preference_line, rollout_line, single_rollout
from relaxforge.export.log import Log

SEED_KEYS = [
    "schemaVersion", "privacyClass", "format", "rolloutId", "seed", "reward", "evaluationRunId", "trajectory",
]  # fmt: skip
OUR_KEYS = [
    "environmentVersionId", "trainingRunId", "trialId", "stages", "failureCategory", "trajectoryStatus", "createdAt",
]  # fmt: skip
PAIR_KEYS = [
    "schemaVersion", "privacyClass", "environmentVersionId", "preferredRolloutId", "rejectedRolloutId",
    "preferredReward", "rejectedReward",
]  # fmt: skip


def initialised():
    forest = Forest()
    asked = forest.turn(None, [user("go")], said(None, call("a", "mcp", '{"command":"initialize"}')))
    forest.states = forest.states[:2]
    forest.states.append({**forest.states[0], "state": "s3", "parent": asked, "message": [result("a", "…")]})
    return dump(forest)


def test_a_line_begins_exactly_as_in_the_source():
    rollout = stored(initialised(), id="R", evaluation_run_id="E", reward=0.15)
    assert (
        rollout_line(rollout)
        .decode()
        .startswith(
            '{"schemaVersion":1,"privacyClass":"PRIVATE","format":"atif-shaped","rolloutId":"R","seed":0,"reward":0.15,'
            '"evaluationRunId":"E","trajectory":[{"step":1,"tool":"mcp","command":"initialize","observation":"…"}]'
        )
    )


def test_every_line_has_the_same_keys_in_the_same_order_and_no_null_but_the_reward():
    forest, last = shop()
    rollouts = [
        stored(dump(forest, exported=last)),
        stored(environment_version_id=None, evaluation_run_id=None, training_run_id="t", reward=None),
        stored(trajectory_status="missing"),
        stored(dump(), trajectory=b"damaged"),
    ]
    lines = [json.loads(rollout_line(rollout)) for rollout in rollouts]
    for line in lines:
        assert list(line) == SEED_KEYS + OUR_KEYS
        assert [key for key, value in line.items() if value is None] in ([], ["reward"])
    assert [line["format"] for line in lines] == ["atif-shaped", "reward-only", "reward-only", "reward-only"]
    assert [line["trajectoryStatus"] for line in lines] == ["present", "none", "missing", "missing"]
    assert [line["trajectory"] for line in lines[1:]] == [[], [], []]


@pytest.mark.parametrize(("reward", "text"), [(1.0, b'"reward":1.0,'), (0.0, b'"reward":0.0,'), (0.15, b":0.15,")])
def test_rewards_have_a_decimal_point_and_their_exact_digits(reward, text):
    assert text in rollout_line(stored(reward=reward))


def test_lines_are_utf_8_and_end_with_a_line_feed_whatever_the_text_holds():
    forest = Forest()
    asked = forest.turn(None, [user("go")], said(None, call("a", "sh", '{"command":"é 😀"}')))
    forest.turn(asked, [result("a", "a\r\nb\u2028c\x1b[0m <script>")], said("ok"))
    line = rollout_line(stored(dump(forest)))
    assert "é 😀".encode() in line
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert json.loads(line)["trajectory"][0]["observation"] == "a\r\nb\u2028c\x1b[0m <script>"


def test_times_are_utc_with_milliseconds():
    moment = datetime(2026, 1, 2, 5, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
    assert json.loads(rollout_line(stored(created_at=moment)))["createdAt"] == "2026-01-02T03:04:05.678Z"


def test_stages_are_text_on_a_line_and_as_written_in_the_single_answer():
    rollout = stored(id="R", stages={"stage_inventory": 1, "stage_checkout": 0})
    assert json.loads(rollout_line(rollout))["stages"] == '{"stage_inventory":1,"stage_checkout":0}'
    assert json.dumps(single_rollout(rollout)) == (
        '{"id": "R", "seed": 0, "reward": 0.15, "environmentVersionId": "version", "evaluationRunId": "run", '
        '"stages": {"stage_inventory": 1, "stage_checkout": 0}}'
    )


def test_a_preference_line_has_exactly_the_keys_of_the_source():
    line = json.loads(preference_line(stored(id="A", reward=1.0), stored(id="B", reward=0.15)))
    assert list(line) == PAIR_KEYS
    assert (line["preferredRolloutId"], line["rejectedRolloutId"]) == ("A", "B")
    assert (line["preferredReward"], line["rejectedReward"]) == (1.0, 0.15)


def test_files_are_named_as_in_the_source():
    assert [choose(kind).file_name for kind in KINDS] == [
        "agentforge-rollouts-all.jsonl", "agentforge-rollouts-successful.jsonl", "agentforge-rollouts-failed.jsonl",
        "agentforge-rollouts-recovery.jsonl", "agentforge-preferences.jsonl",
    ]  # fmt: skip
    assert choose("failed", "atif").file_name == "agentforge-rollouts-failed.atif.jsonl"
    assert choose("preference", "openai-dpo").file_name == "agentforge-preferences.openai-dpo.jsonl"


def test_every_kind_has_its_formats_and_says_which():
    pairs = {"trl-preference", "openai-dpo"}
    for kind in KINDS:
        for name in FORMATS:
            fits = name == "atif-shaped" or (name in pairs) == (kind == "preference")
            if fits:
                assert choose(kind, name).format.name == name
            else:
                with pytest.raises(SelectionError, match=f"format {name} does not go with kind {kind}"):
                    choose(kind, name)
    assert choose("preference").format.pairs == "version"
    assert choose("preference", "trl-preference").format.pairs == "task"


def test_an_unknown_kind_lists_the_five_and_the_nearest():
    with pytest.raises(SelectionError) as caught:
        choose("sucessful")
    assert str(caught.value) == (
        "kind must be one of all, successful, failed, recovery, preference, got 'sucessful'; did you mean successful?"
    )
    assert caught.value.field == "kind"
    with pytest.raises(SelectionError, match="format must be one of atif-shaped, atif, trl-sft"):
        choose("all", "parquet")
    with pytest.raises(SelectionError, match="tokens goes with format atif only"):
        choose("all", tokens=True)


@given(texts=st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=4), log=st.text())
def test_whatever_an_agent_writes_becomes_one_line_that_says_the_same(texts, log):
    extra = [dict(zip(("tool", "command", "observation"), row, strict=True)) for row in texts]
    kept = evidence_of(dump(steps=extra), Log.of(log))
    data = rollout_line(stored(trajectory=kept.trajectory, trajectory_status="present"))
    assert data.count(b"\n") == 1
    line = json.loads(data)
    clean = Cleaner()
    rows = [(step["tool"], step["command"], step["observation"]) for step in line["trajectory"]]
    assert rows == [tuple(clean.text(text) for text in row) for row in texts]
    assert [step["step"] for step in line["trajectory"]] == list(range(1, len(texts) + 1))
    assert "\0" not in data.decode()


@given(texts=st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_becomes_a_document_that_atif_takes(texts):
    forest, parent = Forest(), None
    for text in texts:
        parent = forest.turn(parent, [user(text)], said(text))
    document = json.loads(atif_line(stored(dump(forest, exported=parent))))
    atif.Trajectory.model_validate(document, strict=True)
    assert [step["message"] for step in document["steps"][::2]] == [Cleaner().text(text) for text in texts]
