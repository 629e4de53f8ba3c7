"""The published description, and requests made from it that nobody would think of."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.generation import GenerationMode

API = "/api/v1"
SKIPPED = {"/api/v1/sign-out", "/api/v1/password", "/api/v1/sign-in", "/api/v1/evaluation-runs/{run_id}/events"}
"""These end the session that the others need, slow down on purpose, or do not end."""

EXAMPLES = 12


def test_every_operation_says_what_it_is_for(workspace):
    document = workspace.browser(workspace.a).get(f"{API}/openapi.json").json()
    assert document["info"]["title"] == "RelaxForge workspace"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)
            assert "application/problem+json" in operation["responses"]["default"]["content"], (method, path)
    assert {"token", "browser"} <= set(document["components"]["securitySchemes"])
    assert set(document["components"]["schemas"]["TrialWhole"]["properties"]) >= {"rawReward", "logTruncated"}


def test_nothing_that_the_description_allows_is_a_fault_of_ours(workspace):
    evidence = workspace.evidence(workspace.a)
    client = workspace.browser(workspace.a)
    schema = schemathesis.openapi.from_dict(client.get(f"{API}/openapi.json").json())
    known = {
        "environment_id": evidence.environment_id, "version_id": evidence.version_id, "run_id": evidence.run_id,
        "configuration_id": evidence.configuration_id, "trial_id": evidence.trials[0]["id"],
        "rollout_id": evidence.trials[0]["rollout_id"], "artifact_id": evidence.trials[0]["trajectory_artifact_id"],
    }  # fmt: skip
    faults, asked = [], 0

    def ask(case):
        nonlocal asked
        asked += 1
        for name, value in known.items():
            if name in case.path_parameters and asked % 2:
                case.path_parameters[name] = str(value)
        answer = case.call(base_url=workspace.url, session=None, headers=credentials, timeout=30)
        if answer.status_code >= 500:
            faults.append((answer.status_code, case.as_curl_command(), answer.text))

    credentials = {
        "Cookie": f"relaxforge={client.cookies['relaxforge']}",
        "X-CSRF-Token": client.headers["X-CSRF-Token"],
    }
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in SKIPPED:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            run(operation.as_strategy(generation_mode=mode), ask)
    assert asked > 200
    assert faults == []


def run(strategy, ask):
    from hypothesis import given

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(case):
        ask(case)

    one()
