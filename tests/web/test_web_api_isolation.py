"""What belongs to another organization does not exist, on every route and every page there is.

The queries name the organization and row-level security hides the others' rows: two walls. Each is taken away here to
see that the other one stands, and both to see that the test would notice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest
from fastapi.routing import iter_route_contexts

from conftest import packed
from relaxforge.core.evidence import TrainingRunCard, TrainingSession, TrainingStep
from relaxforge.export import training_bodies
from relaxforge.store import database as store_database
from relaxforge.store import identity
from relaxforge.store.queries import query
from relaxforge.web.app import create_app
from relaxforge.web.config import WebConfig

API = "/api/v1"
RESET, CANCEL = {"json": {"mode": "new_workspace"}}, {"json": {"mode": "at_once"}}
STEPS = training_bodies.steps_body([TrainingStep("step", 1, "", 0, {"reward": 1.0})])

FOREIGN = {
    "GET /environments/{environment_id}": {},
    "GET /environments/{environment_id}/versions": {},
    "POST /environments/{environment_id}/versions": {"files": {"bundle": packed(extra="x")}},
    "GET /environments/{environment_id}/secrets": {},
    "PUT /environments/{environment_id}/secrets/{name}": {"json": {"value": "hidden"}},
    "DELETE /environments/{environment_id}/secrets/{name}": {},
    "GET /environment-versions/{version_id}": {},
    "GET /evaluator-configurations/{configuration_id}": {},
    "POST /evaluator-configurations": {
        "json": {"environmentId": "{environment_id}", "name": "x", "attemptCount": 1, "model": {"engine": "scripted"}}
    },
    "GET /evaluation-runs/{run_id}": {},
    "GET /evaluation-runs/{run_id}/events": {},
    "POST /evaluation-runs": {
        "json": {"environmentVersionId": "{version_id}", "evaluatorConfigurationId": "{configuration_id}"}
    },
    "POST /evaluation-runs/{run_id}/reset": RESET,
    "POST /evaluation-runs/{run_id}/cancel": CANCEL,
    "GET /trials/{trial_id}": {},
    "GET /trials/{trial_id}/steps": {},
    "GET /trials/{trial_id}/turns": {},
    "GET /artifacts/{artifact_id}": {},
    "HEAD /artifacts/{artifact_id}": {},
    "GET /rollouts/{rollout_id}": {},
    "GET /training-runs/{training_run_id}": {},
    "GET /training-runs/{training_run_id}/series": {"params": {"name": "reward"}},
    "POST /training-runs/{training_run_id}/steps": {"content": STEPS},
    "POST /training-runs/{training_run_id}/sessions": {"content": b'{"sessions": []}'},
    "PUT /members/{user_id}": {"json": {"role": "viewer"}},
    "DELETE /tokens/{token_id}": {},
    "DELETE /members/{user_id}": {},
}
"""Every route that takes an id of something: it answers 404 to the id of another organization's."""

LISTED = (
    "GET /organization", "GET /members", "GET /tokens", "GET /audit-log", "GET /environments",
    "GET /evaluator-configurations", "GET /evaluation-runs", "GET /trials", "GET /rollouts", "GET /rollouts/counts",
    "GET /capability-gap", "GET /partial-rewards", "GET /training-runs",
)  # fmt: skip
"""Every route that shows many things: nothing of another organization is among them."""

OWN = {
    "POST /sign-in", "POST /sign-out", "GET /me", "POST /password", "PATCH /organization", "POST /members",
    "POST /tokens", "POST /environments", "POST /training-runs", "GET /rollouts/schema", "GET /openapi.json",
}  # fmt: skip
"""Routes that name nothing that could be another organization's."""


FOREIGN_PAGES = {
    "GET /environments/{environment_id}": {},
    "POST /environments/{environment_id}/versions": {"files": {"bundle": packed(extra="x")}},
    "POST /environments/{environment_id}/runs": {
        "data": {"version": "{version_id}", "configuration": "{configuration_id}", "key": "k"}
    },
    "POST /environments/{environment_id}/configurations": {
        "data": {"name": "x", "attempts": "1", "engine": "scripted"}
    },
    "POST /environments/{environment_id}/secrets": {"data": {"name": "KEY", "value": "hidden"}},
    "POST /environments/{environment_id}/secrets/{name}/delete": {"data": {}},
    "GET /environment-versions/{version_id}": {},
    "GET /runs/{run_id}": {},
    "GET /runs/{run_id}/live": {},
    "POST /runs/{run_id}/reset": {"data": {"mode": "new_workspace", "key": "k"}},
    "POST /runs/{run_id}/cancel": {"data": {"mode": "at_once"}},
    "GET /trials/{trial_id}": {},
    "GET /trials/{trial_id}/steps": {},
    "GET /trials/{trial_id}/steps/{number}/{part}": {},
    "GET /compare": {"params": {"left": "{trial_id}", "right": "{trial_id}"}},
    "GET /compare/steps": {"params": {"left": "{trial_id}", "right": "{trial_id}"}},
    "GET /training-runs/{training_run_id}": {},
    "POST /members/{user_id}/role": {"data": {"role": "viewer"}},
    "POST /members/{user_id}/remove": {"data": {}},
    "POST /tokens/{token_id}/revoke": {"data": {}},
}
"""The same for pages; what a form says is refused before or after the id is looked at, but never done."""

MISSING = {"POST /members/{user_id}/role": {422}, "POST /members/{user_id}/remove": {422}}
"""Pages that say it in the list that they belong to."""

LISTED_PAGES = (
    "GET /environments", "GET /runs", "GET /trials", "GET /capability-gap", "GET /partial-rewards",
    "GET /training-runs", "GET /members", "GET /tokens", "GET /audit-log",
)  # fmt: skip

OWN_PAGES = {
    "GET /", "GET /health", "GET /sign-in", "POST /sign-in", "POST /sign-out", "GET /password", "POST /password",
    "POST /environments/versions", "POST /members", "POST /tokens",
}  # fmt: skip


@dataclass(frozen=True)
class Theirs:
    """The ids of everything that organization B has, by the name that routes give them."""

    ids: dict[str, str]
    environment_id: str


def spelled(method, path):
    return f"{method} {path.removeprefix(API).replace('/training-runs/{run_id}', '/training-runs/{training_run_id}')}"


def routes_of(app, *, api):
    return {
        spelled(method, context.path)
        for context in iter_route_contexts(app.routes)
        for method in context.methods or ()
        if context.path.startswith(API) == api and (method, context.path) != ("HEAD", f"{API}/openapi.json")
    }


@pytest.fixture
def theirs(workspace):
    evidence = workspace.evidence(workspace.b)
    owner = workspace.browser(workspace.b)
    run = owner.post(f"{API}/training-runs", content=training_bodies.run_body(TrainingRunCard("key", "run"))).json()
    owner.post(f"{API}/training-runs/{run['id']}/steps", content=STEPS).raise_for_status()
    token = owner.post(f"{API}/tokens", json={"name": "theirs", "scopes": ["read"]}).json()
    secret = owner.put(f"{API}/environments/{evidence.environment_id}/secrets/KEY", json={"value": "hidden value"})
    assert secret.status_code == 204
    trial = evidence.trials[0]
    ids = {
        "environment_id": evidence.environment_id, "version_id": evidence.version_id, "name": "KEY",
        "configuration_id": evidence.configuration_id, "run_id": evidence.run_id, "trial_id": trial["id"],
        "artifact_id": trial["trajectory_artifact_id"], "rollout_id": trial["rollout_id"],
        "training_run_id": run["id"], "number": 1, "part": "observation",
        "token_id": token["id"], "user_id": owner.get(f"{API}/me").json()["userId"],
    }  # fmt: skip
    return Theirs({name: str(value) for name, value in ids.items()}, str(evidence.environment_id))


def filled(content, ids):
    if isinstance(content, str):
        return content.format(**ids)
    if isinstance(content, dict):
        return {name: filled(value, ids) for name, value in content.items()}
    return content


def asked(client, route, content, ids, prefix):
    method, path = route.split(" ")
    with client.stream(method, prefix + path.format(**ids), **filled(content, ids)) as answer:
        return answer.status_code


def leaks(workspace, theirs):
    """The routes on which somebody of organization A learns of, or changes, what organization B has."""
    ours = workspace.browser(workspace.a)
    found = {route for route, content in FOREIGN.items() if asked(ours, route, content, theirs.ids, API) != 404}
    for route, content in FOREIGN_PAGES.items():
        if asked(ours, route, content, theirs.ids, "") not in MISSING.get(route, {404}):
            found.add(f"page {route}")
    marks = [value for name, value in theirs.ids.items() if name.endswith("_id")] + ["Organization b"]
    for route in LISTED_PAGES:
        answer = ours.get(route.removeprefix("GET "))
        if answer.status_code != 200 or any(mark in answer.text for mark in marks):
            found.add(f"page {route}")
    for route in LISTED:
        answer = ours.get(API + route.removeprefix("GET "))
        counted = route in ("GET /rollouts/counts", "GET /capability-gap") and any(
            value for value in answer.json().values() if value not in (0, [])
        )
        if answer.status_code != 200 or counted or any(mark in answer.text for mark in marks):
            found.add(route)
    return found


def without_where(monkeypatch):
    """Queries that forget to say whose rows they mean."""

    def forgetful(name):
        return re.sub(r"\b(\w+\.)?organization_id = %\(organization_id\)s", "true", query(name))

    monkeypatch.setattr(store_database, "query", forgetful)


def without_row_level_security(urls):
    with psycopg.connect(urls["admin"], autocommit=True) as connection:
        tables = connection.execute("SELECT relname FROM pg_class WHERE relrowsecurity").fetchall()
        assert len(tables) > 10
        for (table,) in tables:
            connection.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")


def test_every_route_and_every_page_has_a_case_here():
    app = create_app(WebConfig(), None, None)
    assert routes_of(app, api=True) == set(FOREIGN) | set(LISTED) | OWN
    assert routes_of(app, api=False) - {" /static"} == set(FOREIGN_PAGES) | set(LISTED_PAGES) | OWN_PAGES


def test_nothing_of_another_organization_is_seen_or_changed(workspace, theirs):
    assert leaks(workspace, theirs) == set()


def test_row_level_security_alone_keeps_organizations_apart(workspace, theirs, monkeypatch):
    without_where(monkeypatch)
    assert leaks(workspace, theirs) == set()


def test_the_queries_alone_keep_organizations_apart(workspace, theirs, database_urls):
    without_row_level_security(database_urls)
    assert leaks(workspace, theirs) == set()


def test_without_both_walls_this_test_would_fail(workspace, theirs, database_urls, monkeypatch):
    without_where(monkeypatch)
    without_row_level_security(database_urls)
    assert leaks(workspace, theirs) >= {
        "GET /environments", "GET /environments/{environment_id}", "GET /rollouts", "GET /rollouts/counts",
        "GET /rollouts/{rollout_id}", "GET /artifacts/{artifact_id}", "GET /trials", "GET /trials/{trial_id}",
        "POST /evaluation-runs/{run_id}/cancel", "POST /evaluation-runs/{run_id}/reset", "GET /audit-log",
        "GET /capability-gap", "GET /training-runs", "GET /evaluation-runs/{run_id}/events", "page GET /runs/{run_id}",
        "page GET /trials/{trial_id}", "page GET /environments", "page POST /runs/{run_id}/cancel",
    }  # fmt: skip


def test_a_foreign_id_and_one_that_never_existed_get_the_same_answer(workspace, theirs):
    ours = workspace.browser(workspace.a)
    for route, content in FOREIGN.items():
        method, path = route.split(" ")
        if "{" not in path or method == "HEAD":
            continue
        answers = []
        for ids in (theirs.ids, {name: str(uuid4()) for name in theirs.ids} | {"name": "KEY"}):
            answer = ours.request(method, API + path.format(**ids), **filled(content, ids))
            problem = answer.json()
            text = problem["detail"]
            for value in (str(value) for name, value in ids.items() if name.endswith("_id")):
                text = text.replace(value, "ID")
            answers.append((answer.status_code, problem["title"], problem["type"], text))
        assert answers[0] == answers[1], route


def test_the_same_names_may_be_used_in_every_organization(workspace, theirs):
    ours = workspace.browser(workspace.a)
    assert ours.post(f"{API}/environments", json={"name": "corner shop"}).status_code == 201
    run = ours.post(f"{API}/training-runs", content=training_bodies.run_body(TrainingRunCard("key", "run"))).json()
    assert run["id"] != theirs.ids["training_run_id"]


def test_a_person_of_both_organizations_works_in_one_at_a_time(workspace, theirs):
    email = workspace.person(workspace.a, "member", "both@example.org")

    async def join(tx):
        await identity.add_member(tx, email=email, name="", password_hash="-", role="viewer")

    workspace.run(workspace.b, join)
    client = workspace.client()
    asked_for = {"email": email, "password": "a password for tests", "organizationId": str(workspace.b.organization_id)}
    assert client.post(f"{API}/sign-in", json=asked_for).json()["role"] == "viewer"
    assert len(client.get(f"{API}/environments").json()["items"]) == 1
    asked_for["organizationId"] = str(workspace.a.organization_id)
    assert client.post(f"{API}/sign-in", json=asked_for).json()["role"] == "member"
    assert client.get(f"{API}/environments").json()["items"] == []


def test_training_sessions_reach_their_own_run_only(workspace, theirs):
    ours = workspace.browser(workspace.a)
    from conftest import ended_with

    session = TrainingSession(
        session_key="s1", rollout_step=0, group_key="g", mode="train", task_index=0, attempt_no=1, seed=0, world_seed=0,
        evidence=ended_with(0.5),
    )  # fmt: skip
    body = training_bodies.sessions_body([session])
    foreign = ours.post(f"{API}/training-runs/{theirs.ids['training_run_id']}/sessions", content=body)
    assert foreign.status_code == 404
    run = ours.post(f"{API}/training-runs", content=training_bodies.run_body(TrainingRunCard("mine", "run"))).json()
    for added in (1, 0):
        answer = ours.post(f"{API}/training-runs/{run['id']}/sessions", content=body)
        assert answer.json() == {"added": added}
