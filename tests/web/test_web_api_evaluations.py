"""From a folder to an evaluation run: publishing, configuring, running, resetting, cancelling, watching."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
import threading

import httpx
import psycopg
import pytest

from conftest import MANIFEST, packed
from relaxforge.environments.bundle import open_bundle
from relaxforge.web.config import WebConfig

API = "/api/v1"
MODEL = {"engine": "scripted"}


def environment(client, name="shop"):
    return client.post(f"{API}/environments", json={"name": name}).json()["id"]


def publish(client, environment_id, content):
    return client.post(f"{API}/environments/{environment_id}/versions", files={"bundle": content})


def archive(*members):
    """A tar.gz with members that no honest program writes."""
    packed_bytes = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed_bytes, mode="wb") as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, kind, size in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, size, "/etc/passwd"
            tar.addfile(member, io.BytesIO(b"x" * size) if kind == tarfile.REGTYPE else None)
    return packed_bytes.getvalue()


def test_the_same_content_is_the_same_version_and_other_content_the_next(workspace):
    client = workspace.browser(workspace.a)
    shop = environment(client)
    first, again, other = (publish(client, shop, content) for content in (packed(), packed(), packed(more="x")))
    assert [first.status_code, again.status_code, other.status_code] == [201, 200, 201]
    assert first.json() == again.json()
    assert [first.json()["number"], other.json()["number"]] == [1, 2]
    assert first.json()["digest"] == open_bundle(packed()).digest.hex()
    assert [file["path"] for file in first.json()["files"]] == ["agent.py", "environment.toml"]
    listed = client.get(f"{API}/environments/{shop}/versions").json()["items"]
    assert [version["number"] for version in listed] == [2, 1]
    assert client.get(f"{API}/environment-versions/{first.json()['id']}").json() == first.json()
    shown = client.get(f"{API}/environments/{shop}").json()
    assert (shown["versions"], shown["latestNumber"], shown["latestVersionId"]) == (2, 2, other.json()["id"])
    actions = [entry["action"] for entry in client.get(f"{API}/audit-log").json()["items"]]
    assert actions.count("version_published") == 2


def test_what_was_published_can_be_downloaded_as_it_was(workspace):
    client = workspace.browser(workspace.a)
    version = publish(client, environment(client), packed()).json()
    body = client.get(f"{API}/artifacts/{version['bundleArtifactId']}").content
    assert open_bundle(body).digest.hex() == version["digest"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a readable tar.gz"),
        (b"no archive at all", "not a readable tar.gz"),
        (archive(("agent.py", tarfile.REGTYPE, 1)), "no environment.toml"),
        (archive(("../outside", tarfile.REGTYPE, 1)), "leads out of the bundle"),
        (archive(("/etc/cron.d/x", tarfile.REGTYPE, 1)), "leads out of the bundle"),
        (archive(("link", tarfile.SYMTYPE, 0)), "not a regular file"),
        (archive(("pipe", tarfile.FIFOTYPE, 0)), "not a regular file"),
        (archive(("zeros", tarfile.REGTYPE, 65 << 20)), "at most 64 MiB"),
        (packed(**{"environment.toml": MANIFEST.replace('"order milk"', '""')}), "content is empty"),
    ],
)
def test_a_bundle_that_is_none_is_refused_with_the_reason(workspace, content, words):
    client = workspace.browser(workspace.a)
    answer = publish(client, environment(client), content)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert answer.json()["errors"][0]["path"] == "body.bundle"


def test_an_upload_without_a_bundle_names_the_field(workspace):
    client = workspace.browser(workspace.a)
    answer = client.post(f"{API}/environments/{environment(client)}/versions", files={"other": b"x"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "body.bundle")


def test_a_name_that_is_taken_is_a_conflict(workspace):
    client = workspace.browser(workspace.a)
    environment(client)
    assert client.post(f"{API}/environments", json={"name": "shop"}).status_code == 409


def test_a_secret_can_be_set_and_deleted_and_never_read(workspace, database_urls):
    client = workspace.browser(workspace.a)
    place = f"{API}/environments/{environment(client)}/secrets"
    assert client.put(f"{place}/API_KEY", json={"value": "sk-very-secret"}).status_code == 204
    assert [row["name"] for row in client.get(place).json()["items"]] == ["API_KEY"]
    assert "sk-very-secret" not in client.get(place).text + client.get(f"{API}/audit-log").text
    with psycopg.connect(database_urls["admin"]) as connection:
        (kept,) = connection.execute("SELECT ciphertext FROM environment_secrets").fetchone()
    assert b"sk-very-secret" not in kept
    assert client.put(f"{place}/RELAX_X", json={"value": "x"}).status_code == 422
    assert client.put(f"{place}/1bad", json={"value": "x"}).status_code == 422
    assert client.put(f"{place}/API_KEY", json={"value": ""}).status_code == 422
    assert client.delete(f"{place}/API_KEY").status_code == 204
    assert client.delete(f"{place}/API_KEY").status_code == 404


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"attemptCount": 0}, "body.attemptCount"),
        ({"attemptCount": 9}, "body.attemptCount"),
        ({"attemptCount": "many"}, "body.attemptCount"),
        ({"passThreshold": 0}, "body.passThreshold"),
        ({"passThreshold": 1.5}, "body.passThreshold"),
        ({"concurrency": 0}, "body.concurrency"),
        ({"seed": -1}, "body.seed"),
        ({"seed": 2**70}, "body.seed"),
        ({"model": {"engine": "unheard of"}}, "body.model"),
        ({"model": {}}, "body.model"),
        ({"budget": {"timeoutS": -1}}, "body.budget"),
        ({"name": ""}, "body.name"),
        ({"unknown": 1}, "body.unknown"),
    ],
)
def test_a_configuration_that_makes_no_sense_says_which_field(workspace, change, path):
    client = workspace.browser(workspace.a)
    body = {"environmentId": environment(client), "name": "five", "attemptCount": 5, "model": MODEL}
    answer = client.post(f"{API}/evaluator-configurations", json=body | change)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)


@pytest.mark.parametrize("attempts", [1, 8])
def test_one_to_eight_attempts_are_fine(workspace, attempts):
    client = workspace.browser(workspace.a)
    body = {"environmentId": environment(client), "name": "x", "attemptCount": attempts, "model": MODEL}
    made = client.post(f"{API}/evaluator-configurations", json=body)
    assert (made.status_code, made.json()["attemptCount"]) == (201, attempts)
    assert client.get(f"{API}/evaluator-configurations/{made.json()['id']}").json() == made.json()
    assert client.get(f"{API}/evaluator-configurations").json()["items"] == [made.json()]
    assert client.post(f"{API}/evaluator-configurations", json=body).status_code == 409


def started(client, content=None):
    shop = environment(client)
    version = publish(client, shop, content or packed()).json()["id"]
    body = {"environmentId": shop, "name": "two", "attemptCount": 2, "model": MODEL}
    configuration = client.post(f"{API}/evaluator-configurations", json=body).json()["id"]
    body = {"environmentVersionId": version, "evaluatorConfigurationId": configuration}
    return body, client.post(f"{API}/evaluation-runs", json=body, headers={"Idempotency-Key": "k"})


def test_the_same_key_starts_one_run_and_another_request_under_it_is_a_conflict(workspace):
    client = workspace.browser(workspace.a)
    body, first = started(client)
    again = client.post(f"{API}/evaluation-runs", json=body, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    run_id = first.json()["evaluationRunId"]
    other = client.post(
        f"{API}/evaluation-runs/{run_id}/reset", json={"mode": "new_world"}, headers={"Idempotency-Key": "k"}
    )
    assert other.status_code == 409
    run = client.get(f"{API}/evaluation-runs/{run_id}").json()
    assert (run["status"], run["jobId"], run["versionNumber"]) == ("queued", first.json()["jobId"], 1)
    assert run["summary"]["n"] == 0
    assert run["summary"]["passAtK"] == {"1": None, "2": None}


@pytest.mark.parametrize(("mode", "seed"), [("new_workspace", 0), ("new_world", 1)])
def test_a_reset_is_a_new_job_on_the_same_version(workspace, mode, seed):
    client = workspace.browser(workspace.a)
    body, first = started(client)
    answer = client.post(f"{API}/evaluation-runs/{first.json()['evaluationRunId']}/reset", json={"mode": mode})
    assert answer.status_code == 202
    assert set(answer.json()) == {"evaluationRunId", "jobId"}
    run = client.get(f"{API}/evaluation-runs/{answer.json()['evaluationRunId']}").json()
    assert run["environmentVersionId"] == body["environmentVersionId"]
    assert (run["resetMode"], run["worldSeed"]) == (mode, seed)
    assert run["resetOfId"] == first.json()["evaluationRunId"]
    refused = client.post(f"{API}/evaluation-runs/{run['id']}/reset", json={"mode": "new_everything"})
    assert refused.status_code == 422


def test_a_run_that_waits_is_cancelled_at_once(workspace):
    client = workspace.browser(workspace.a)
    _, first = started(client)
    place = f"{API}/evaluation-runs/{first.json()['evaluationRunId']}"
    assert client.post(f"{place}/cancel", json={"mode": "never"}).status_code == 422
    assert client.post(f"{place}/cancel", json={"mode": "finish_running"}).json()["status"] == "cancelled"
    assert client.post(f"{place}/cancel", json={"mode": "at_once"}).json()["status"] == "cancelled"
    assert (
        client.get(f"{API}/evaluation-runs?status=cancelled").json()["items"][0]["id"]
        == first.json()["evaluationRunId"]
    )


def events(client, run_id):
    with client.stream("GET", f"{API}/evaluation-runs/{run_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def test_a_run_that_has_ended_tells_everything_and_ends_the_stream(workspace):
    evidence = workspace.evidence(workspace.a, (0.15, 1.0, None))
    told = list(events(workspace.browser(workspace.a), evidence.run_id))
    assert [name for name, _ in told] == ["run", "trial", "trial", "trial", "end"]
    assert told[0][1]["summary"]["n"] == 2
    assert [data["reward"] for name, data in told if name == "trial"] == [0.15, 1.0, None]


def test_whoever_watches_hears_of_a_change_and_of_the_end(workspace):
    client = workspace.browser(workspace.a)
    _, first = started(client)
    run_id = first.json()["evaluationRunId"]
    watched = events(client, run_id)
    assert next(watched)[1]["status"] == "queued"
    other = workspace.browser(workspace.a)
    other.post(f"{API}/evaluation-runs/{run_id}/cancel", json={"mode": "at_once"})
    told = list(watched)
    assert [(name, data.get("status")) for name, data in told] == [("run", "cancelled"), ("end", None)]


class TestFewStreams:
    @pytest.fixture
    def web_config(self):
        return WebConfig(port=0, event_poll_s=0.05, event_streams=1)

    def test_one_organization_holds_only_so_many_live_views(self, workspace):
        client = workspace.browser(workspace.a)
        _, first = started(client)
        place = f"{API}/evaluation-runs/{first.json()['evaluationRunId']}/events"
        with client.stream("GET", place) as open_view:
            lines = open_view.iter_lines()
            next(lines)
            refused = client.get(place)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            other = workspace.browser(workspace.b)
            _, theirs = started(other)
            with other.stream("GET", f"{API}/evaluation-runs/{theirs.json()['evaluationRunId']}/events") as view:
                assert view.status_code == 200


def test_a_server_that_ends_takes_its_live_views_with_it(workspace):
    client = workspace.browser(workspace.a)
    _, first = started(client)
    watched = events(client, first.json()["evaluationRunId"])
    next(watched)
    ended = threading.Event()

    def read():
        with contextlib.suppress(httpx.TransportError):
            list(watched)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    workspace.loop.loop.call_soon_threadsafe(workspace.app.state.closing.set)
    assert ended.wait(10)
    reader.join()
