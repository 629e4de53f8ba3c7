"""Rollouts as files that are complete or not there at all, artifacts as downloads, and what Trials have in common."""

from __future__ import annotations

import gzip
import hashlib
import json

import psycopg
import pytest

from relaxforge.store import rollouts
from relaxforge.store.bodies import read_groups
from relaxforge.web.config import WebConfig

API = "/api/v1"
REWARDS = (0.15, 1.0, 0.0, None)
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
PLAIN = {"Accept-Encoding": "identity"}


def lines_of(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.content.splitlines()]


def test_the_files_of_the_five_kinds(workspace):
    workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    expected = {
        "all": ("agentforge-rollouts-all.jsonl", [None, 0.0, 1.0, 0.15]),
        "successful": ("agentforge-rollouts-successful.jsonl", [1.0]),
        "failed": ("agentforge-rollouts-failed.jsonl", [0.0, 0.15]),
        "recovery": ("agentforge-rollouts-recovery.jsonl", [0.15]),
        "preference": ("agentforge-preferences.jsonl", None),
    }
    counts = client.get(f"{API}/rollouts/counts").json()
    for kind, (name, rewards) in expected.items():
        answer = client.get(f"{API}/rollouts?kind={kind}")
        lines = lines_of(answer)
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert answer.headers["cache-control"] == "private, no-store"
        assert all(line["privacyClass"] == "PRIVATE" for line in lines)
        assert len(lines) == counts[kind] == int(answer.headers["x-rollout-count"])
        if rewards is not None:
            assert [line["reward"] for line in lines] == rewards
    assert counts["unscored"] == 1


def test_the_line_and_the_single_answer_are_those_of_the_source(workspace):
    evidence = workspace.evidence(workspace.a, (0.15,))
    client = workspace.browser(workspace.a)
    (line,) = lines_of(client.get(f"{API}/rollouts?kind=failed"))
    trial = evidence.trials[0]
    assert {name: line[name] for name in ("schemaVersion", "privacyClass", "format", "seed", "reward")} == {
        "schemaVersion": 1, "privacyClass": "PRIVATE", "format": "atif-shaped", "seed": 0, "reward": 0.15
    }  # fmt: skip
    assert line["rolloutId"] == str(trial["rollout_id"])
    assert line["trajectory"][0] == {"step": 1, "tool": "mcp", "command": "initialize", "observation": "shelf 0"}
    single = client.get(f"{API}/rollouts/{line['rolloutId']}")
    assert single.json() == {
        "id": str(trial["rollout_id"]), "seed": 0, "reward": 0.15, "environmentVersionId": str(evidence.version_id),
        "evaluationRunId": str(evidence.run_id), "stages": {"stage_inventory": 1, "stage_checkout": 0},
    }  # fmt: skip


def test_a_preference_is_the_highest_against_the_lowest_of_a_version(workspace):
    evidence = workspace.evidence(workspace.a, REWARDS)
    (line,) = lines_of(workspace.browser(workspace.a).get(f"{API}/rollouts?kind=preference"))
    assert line == {
        "schemaVersion": 1, "privacyClass": "PRIVATE", "environmentVersionId": str(evidence.version_id),
        "preferredRolloutId": str(evidence.trials[1]["rollout_id"]), "preferredReward": 1.0,
        "rejectedRolloutId": str(evidence.trials[2]["rollout_id"]), "rejectedReward": 0.0,
    }  # fmt: skip


def test_whoever_downloads_can_check_that_it_is_all_there(workspace):
    workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    plain = client.get(f"{API}/rollouts", headers=PLAIN)
    assert "content-encoding" not in plain.headers
    assert int(plain.headers["content-length"]) == len(plain.content) == int(plain.headers["x-content-length"])
    assert plain.headers["x-content-sha256"] == hashlib.sha256(plain.content).hexdigest()
    assert plain.content.endswith(b"\n")
    with client.stream("GET", f"{API}/rollouts", headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(packed)
    assert gzip.decompress(packed) == plain.content
    assert answer.headers["x-content-sha256"] == plain.headers["x-content-sha256"]


def test_a_client_that_refuses_gzip_gets_none(workspace):
    client = workspace.browser(workspace.a)
    for accepted, encoding in (("gzip;q=0", None), ("br, identity", None), ("br, GZIP;q=0.5", "gzip"), ("", None)):
        answer = client.get(f"{API}/rollouts", headers={"Accept-Encoding": accepted})
        assert answer.headers.get("content-encoding") == encoding, accepted


def test_a_cap_is_never_silent(workspace):
    workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    seen, cursor, totals = [], None, set()
    while True:
        answer = client.get(f"{API}/rollouts", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        seen += [line["rolloutId"] for line in lines_of(answer)]
        totals.add(answer.headers["x-rollout-total"])
        cursor = answer.headers.get("x-next-cursor")
        if cursor is None:
            break
    assert (len(seen), len(set(seen)), totals) == (4, 4, {"4"})
    assert client.get(f"{API}/rollouts?limit=1001").status_code == 400


def test_unknown_kinds_and_formats_name_what_there_is(workspace):
    client = workspace.browser(workspace.a)
    answer = client.get(f"{API}/rollouts?kind=best")
    assert answer.status_code == 400
    assert "all, successful, failed, recovery, preference" in answer.json()["detail"]
    assert answer.json()["errors"][0]["path"] == "query.kind"
    assert client.get(f"{API}/rollouts?format=csv").status_code == 400
    assert client.get(f"{API}/rollouts?kind=failed&format=openai-dpo").status_code == 400


@pytest.mark.parametrize("format_name", ["atif-shaped", "atif", "trl-sft", "trl-kto"])
def test_every_format_has_its_file_and_its_columns(workspace, format_name):
    workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    answer = client.get(f"{API}/rollouts?kind=failed&format={format_name}")
    lines = lines_of(answer)
    assert len(lines) + int(answer.headers["x-rollout-left-out"]) == 2
    schema = client.get(f"{API}/rollouts/schema?kind=failed&format={format_name}").json()
    assert schema["fileName"] in answer.headers["content-disposition"]
    assert all(set(line) <= set(schema["features"]) for line in lines)


def test_filters_restrict(workspace):
    evidence = workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    nothing = "00000000-0000-4000-8000-000000000000"
    for name, value in (
        ("environmentId", evidence.environment_id),
        ("environmentVersionId", evidence.version_id),
        ("evaluationRunId", evidence.run_id),
    ):
        assert len(lines_of(client.get(f"{API}/rollouts?{name}={value}"))) == 4
        assert lines_of(client.get(f"{API}/rollouts?{name}={nothing}")) == []
        assert client.get(f"{API}/rollouts/counts?{name}={nothing}").json()["all"] == 0
    assert lines_of(client.get(f"{API}/rollouts?since=2100-01-01T00:00:00Z")) == []
    assert client.get(f"{API}/rollouts?since=2026-01-01T00:00:00").status_code == 400


def test_exports_are_in_the_audit_log(workspace):
    client = workspace.browser(workspace.a)
    answer = client.get(f"{API}/rollouts?kind=failed")
    entry = client.get(f"{API}/audit-log").json()["items"][0]
    assert (entry["action"], entry["subject"]) == ("exported", "agentforge-rollouts-failed.jsonl")
    assert entry["detail"] == {"query": "kind=failed", "rows": 0, "sha256": answer.headers["x-content-sha256"]}


class TestOneAtATime:
    @pytest.fixture
    def web_config(self):
        return WebConfig(port=0, exports_at_once=1)

    def test_an_organization_runs_only_so_many_exports(self, workspace):
        client = workspace.browser(workspace.a)
        gate = workspace.app.state.exports
        with gate.enter(workspace.a.organization_id):
            answer = client.get(f"{API}/rollouts")
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0
            assert workspace.browser(workspace.b).get(f"{API}/rollouts").status_code == 200
        assert client.get(f"{API}/rollouts").status_code == 200


def test_a_database_that_goes_away_in_the_middle_is_a_503_and_never_a_short_file(workspace, database_urls, monkeypatch):
    workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)

    async def interrupted(tx, ids, bodies):
        async for groups in read_groups(tx, ids, bodies):
            yield groups
            with psycopg.connect(database_urls["admin"], autocommit=True) as connection:
                connection.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
            await tx.connection.execute("SELECT 1")

    monkeypatch.setattr(rollouts, "read_groups", interrupted)
    answer = client.get(f"{API}/rollouts")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert "socket" not in answer.text
    monkeypatch.undo()
    while (again := client.get(f"{API}/rollouts")).status_code == 503:
        pass  # The pool finds its broken connections one by one.
    assert len(lines_of(again)) == 4


def test_a_database_that_is_not_there_is_a_503_for_everything(workspace, database_urls):
    client = workspace.browser(workspace.a)
    workspace.loop.run(workspace.database.close())
    answer = client.get(f"{API}/trials")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:relaxforge:problem:storage_unavailable")
    assert client.get("/health").status_code == 200


def test_an_artifact_is_a_download_that_nothing_runs_in(workspace):
    evidence = workspace.evidence(workspace.a, (0.15,))
    client = workspace.browser(workspace.a)
    place = f"{API}/artifacts/{evidence.trials[0]['trajectory_artifact_id']}"
    answer = client.get(place)
    assert answer.headers["content-disposition"] == 'attachment; filename="trial-1-trajectory.json"'
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    artifact = answer.json()
    assert (artifact["schemaVersion"], artifact["log"]) == (1, "opened the shop")
    assert json.loads(artifact["trajectory"])["steps"][0]["tool"] == "mcp"
    head = client.head(place)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.content))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-5", -5, None), ("bytes=5-999999", 5, None)],
)
def test_a_part_of_an_artifact(workspace, asked, start, end):
    evidence = workspace.evidence(workspace.a, (0.15,))
    client = workspace.browser(workspace.a)
    place = f"{API}/artifacts/{evidence.trials[0]['trajectory_artifact_id']}"
    whole = client.get(place)
    part = client.get(place, headers={"Range": asked})
    assert (part.status_code, part.content) == (206, whole.content[start:end])
    first = start % len(whole.content)
    assert part.headers["content-range"] == f"bytes {first}-{first + len(part.content) - 1}/{len(whole.content)}"
    stale = client.get(place, headers={"Range": asked, "If-Range": '"another"'})
    assert (stale.status_code, stale.content) == (200, whole.content)


def test_a_range_behind_the_end_says_how_long_it_is(workspace):
    evidence = workspace.evidence(workspace.a, (0.15,))
    client = workspace.browser(workspace.a)
    place = f"{API}/artifacts/{evidence.trials[0]['trajectory_artifact_id']}"
    size = len(client.get(place).content)
    answer = client.get(place, headers={"Range": f"bytes={size}-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")
    for nonsense in ("bytes=x", "lines=1-2", "bytes=-", "bytes=0-1,5-6"):
        assert client.get(place, headers={"Range": nonsense}).status_code == 200


def test_a_trial_with_its_steps_and_turns(workspace):
    evidence = workspace.evidence(workspace.a, REWARDS)
    client = workspace.browser(workspace.a)
    listed = client.get(f"{API}/trials?evaluationRunId={evidence.run_id}").json()["items"]
    assert {row["reward"] for row in listed} == set(REWARDS)
    only = client.get(f"{API}/trials?failureCategory=wrong_result&status=completed&mode=eval").json()["items"]
    assert sorted(row["reward"] for row in only) == [0.0, 0.15]
    place = f"{API}/trials/{evidence.trials[0]['id']}"
    whole = client.get(place).json()
    assert (whole["stages"], whole["rawReward"]) == ({"stage_inventory": 1, "stage_checkout": 0}, "0.15")
    first = client.get(f"{place}/steps?limit=1").json()
    assert (first["total"], len(first["steps"]), first["next"]) == (2, 1, 2)
    rest = client.get(f"{place}/steps?from=2").json()
    assert ([step["step"] for step in rest["steps"]], rest["next"]) == ([2], None)
    assert client.get(f"{place}/turns").json() == {"items": []}


def test_capability_gap_counts_what_stands_in_rows_and_invents_nothing(workspace):
    client = workspace.browser(workspace.a)
    empty = client.get(f"{API}/capability-gap").json()
    assert empty == {"ended": 0, "scored": 0, "categorised": 0, "items": []}
    workspace.evidence(workspace.a, REWARDS)
    gap = client.get(f"{API}/capability-gap").json()
    assert (gap["ended"], gap["scored"], gap["categorised"]) == (4, 3, 3)
    found = [(item["failureCategory"], item["trials"], item["infrastructure"]) for item in gap["items"]]
    assert found == [("wrong_result", 2, False), ("verifier_error", 1, True)]


def test_partial_rewards_lists_stages_only_where_a_worker_wrote_them(workspace):
    client = workspace.browser(workspace.a)
    assert client.get(f"{API}/partial-rewards").json() == {"items": [], "nextCursor": None}
    workspace.evidence(workspace.a, REWARDS)
    items = client.get(f"{API}/partial-rewards").json()["items"]
    assert sorted(item["stages"]["stage_checkout"] for item in items) == [0, 0, 1]
    page = client.get(f"{API}/partial-rewards?limit=2").json()
    rest = client.get(f"{API}/partial-rewards?limit=2&cursor={page['nextCursor']}").json()
    assert [item["id"] for item in page["items"] + rest["items"]] == [item["id"] for item in items]
