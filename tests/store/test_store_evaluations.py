"""Evaluation runs and their Trials in a real database."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import psycopg
import pytest

from relaxforge.core.evidence import TrialEvidence, Verdict
from relaxforge.credit.summary import summarise
from relaxforge.store import artifacts, environments, evaluations, jobs, trials
from relaxforge.store.errors import ConflictError, InvalidError, LeaseLostError, MissingError
from relaxforge.store.trials import Author

AUTHOR = Author("shopper", "2", "scripted (tiny)")


def evidence(reward=1.0, status="completed", category=None, stages=None, trajectory=b"{}"):
    score = "scored" if reward is not None else "not_scored"
    return TrialEvidence(
        status=status,
        verdict=Verdict(reward, score, json.dumps(reward), stages or {}, {"coins": 3}, category),
        trajectory=trajectory,
        session=b"{}",
        step_count=2,
        turns=1,
        prompt_tokens=10,
        completion_tokens=4,
        duration_s=0.5,
        durations={"active": 0.5},
    )


class Workspace:
    """One organization's environment, and short spellings for what is done with it."""

    def __init__(self, on_loop, app, worker, scope):
        self.on_loop, self.app, self.worker, self.scope = on_loop, app, worker, scope
        self.environment, self.version = self.write(self._publish)

    async def _publish(self, tx):
        made = await environments.create_environment(tx, name=f"shop-{uuid4()}")
        published = await environments.publish(tx, made["id"], manifest={}, files=[], digest=bytes(32), package=b"x")
        return made["id"], published.version_id

    def write(self, step, *args, database=None, scope=None, **values):
        async def transaction():
            async with (database or self.app).scope(scope or self.scope) as tx:
                return await step(tx, *args, **values)

        return self.on_loop(transaction())

    def configure(self, **changed):
        values = {
            "environment_id": self.environment, "name": f"c-{uuid4()}", "attempt_count": 2,
            "model": {"engine": "scripted"}, "agent_name": "shopper", "agent_version": "2", **changed,
        }  # fmt: skip
        return self.write(evaluations.create_configuration, **values)

    def start(self, configuration=None, **more):
        configuration = configuration or self.configure()
        return self.write(
            evaluations.start_run, environment_version_id=self.version,
            evaluator_configuration_id=configuration["id"], **more,
        )  # fmt: skip

    def run(self, run_id):
        return self.write(evaluations.get_run, run_id)

    def attempts(self, run_id):
        return self.write(trials.attempts, run_id)

    def claim(self):
        return self.on_loop(jobs.claim(self.worker, "w", 60.0, self.scope.organization_id))

    def work(self, step, lease, *args, **values):
        """One step of a worker, in its own transaction."""
        return self.write(step, lease, *args, database=self.worker, scope=lease.scope, **values)

    def begin(self, tasks=1, **configuration):
        """A run whose job is claimed and whose rows are there: the lease, the run's id, the planned attempts."""
        started = self.start(self.configure(**configuration))
        lease = self.claim()
        self.work(trials.create_all, lease, self.run(started.evaluation_run_id), tasks, AUTHOR)
        planned = self.write(trials.planned, started.evaluation_run_id, database=self.worker)
        return lease, started.evaluation_run_id, planned


@pytest.fixture
def workspace(on_loop, app_database, worker_database, two_organizations):
    return Workspace(on_loop, app_database, worker_database, two_organizations.a)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attempt_count": 0}, "attemptCount must be a whole number from 1 to 8, got 0"),
        ({"attempt_count": 9}, "attemptCount must be a whole number from 1 to 8, got 9"),
        ({"concurrency": 0}, "concurrency must be a whole number from 1 to 64, got 0"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"pass_threshold": 0.0}, "passThreshold must be more than 0 and at most 1, got 0.0"),
        ({"pass_threshold": float("nan")}, "passThreshold must be more than 0 and at most 1, got nan"),
        ({"name": " "}, "name is empty"),
    ],
)
def test_a_configuration_outside_the_limits_is_refused_in_words(workspace, changed, message):
    with pytest.raises(InvalidError, match=message):
        workspace.configure(**changed)


@pytest.mark.parametrize("attempts", [0, 9])
def test_the_table_refuses_what_the_words_did_not(workspace, database_urls, attempts):
    with (
        psycopg.connect(database_urls["admin"], autocommit=True) as admin,
        pytest.raises(psycopg.errors.CheckViolation),
    ):
        admin.execute(
            "INSERT INTO evaluator_configurations (organization_id, environment_id, name, attempt_count, agent_name,"
            " agent_version, model) VALUES (%s, %s, 'n', %s, 'a', '1', '{}')",
            (workspace.scope.organization_id, workspace.environment, attempts),
        )


def test_a_name_is_used_once_per_environment(workspace):
    workspace.configure(name="five")
    with pytest.raises(ConflictError, match="has an evaluator configuration 'five' already"):
        workspace.configure(name="five")


def test_a_run_is_enqueued_with_a_snapshot_of_its_configuration(workspace):
    configuration = workspace.configure(attempt_count=3, seed=7, world_seed=11, budget={"timeoutS": 5})
    started = workspace.start(configuration)
    run = workspace.run(started.evaluation_run_id)
    assert (run["status"], run["job_state"], run["job_id"]) == ("queued", "queued", started.job_id)
    assert (run["world_seed"], run["environment_id"]) == (11, workspace.environment)
    assert run["configuration"]["attempt_count"] == 3
    assert run["configuration"]["budget"] == {"timeoutS": 5}


def test_unknown_and_foreign_parts_of_a_run_are_missing(workspace, on_loop, app_database, two_organizations):
    configuration = workspace.configure()
    with pytest.raises(MissingError, match="environment version"):
        workspace.write(
            evaluations.start_run, environment_version_id=uuid4(), evaluator_configuration_id=configuration["id"]
        )
    with pytest.raises(MissingError):
        workspace.write(
            evaluations.start_run, environment_version_id=workspace.version,
            evaluator_configuration_id=configuration["id"], scope=two_organizations.b,
        )  # fmt: skip


def test_a_configuration_belongs_to_its_environment(workspace):
    _, version = workspace.write(workspace._publish)
    with pytest.raises(InvalidError, match="another environment"):
        workspace.write(
            evaluations.start_run, environment_version_id=version,
            evaluator_configuration_id=workspace.configure()["id"],
        )  # fmt: skip


def test_the_same_key_starts_one_run_however_often_and_at_once(workspace, on_loop, app_database):
    configuration = workspace.configure()

    async def start():
        async with app_database.scope(workspace.scope) as tx:
            return await evaluations.start_run(
                tx, environment_version_id=workspace.version, evaluator_configuration_id=configuration["id"],
                idempotency_key="k-1",
            )  # fmt: skip

    async def together():
        return await asyncio.gather(*(start() for _ in range(5)))

    started = on_loop(together())
    assert len({one.evaluation_run_id for one in started}) == 1
    assert sum(one.created for one in started) == 1
    with pytest.raises(ConflictError, match="use a new key"):
        workspace.start(idempotency_key="k-1")


def test_two_organizations_may_use_the_same_key(workspace, on_loop, app_database, worker_database, two_organizations):
    other = Workspace(on_loop, app_database, worker_database, two_organizations.b)
    assert workspace.start(idempotency_key="k").created
    assert other.start(idempotency_key="k").created


@pytest.mark.parametrize(("mode", "seed"), [("new_workspace", 4), ("new_world", 5)])
def test_a_reset_is_a_new_run_of_the_same_version(workspace, mode, seed):
    first = workspace.start(workspace.configure(world_seed=4))
    again = workspace.write(evaluations.reset_run, first.evaluation_run_id, mode, idempotency_key="r")
    run, before = workspace.run(again.evaluation_run_id), workspace.run(first.evaluation_run_id)
    assert (run["reset_of_id"], run["reset_mode"], run["world_seed"]) == (first.evaluation_run_id, mode, seed)
    assert run["environment_version_id"] == before["environment_version_id"]
    assert run["configuration"] == before["configuration"]
    assert again.job_id != first.job_id
    repeated = workspace.write(evaluations.reset_run, first.evaluation_run_id, mode, idempotency_key="r")
    assert (repeated.evaluation_run_id, repeated.created) == (again.evaluation_run_id, False)


def test_an_unknown_reset_mode_is_named(workspace):
    first = workspace.start()
    with pytest.raises(InvalidError, match="mode must be one of new_workspace, new_world, got 'everything'"):
        workspace.write(evaluations.reset_run, first.evaluation_run_id, "everything")


def test_every_attempt_is_a_row_before_the_first_one_starts(workspace):
    lease, run_id, planned = workspace.begin(tasks=2, attempt_count=3, seed=5, world_seed=9)
    order = [(one.attempt, one.task_index, one.number, one.seed, one.world_seed) for one in planned]
    assert order == [
        (1, 0, 1, 5, 9), (1, 1, 4, 5, 9), (2, 0, 2, 6, 9), (2, 1, 5, 6, 9), (3, 0, 3, 7, 9), (3, 1, 6, 7, 9),
    ]  # fmt: skip
    workspace.work(trials.create_all, lease, workspace.run(run_id), 2, AUTHOR)
    assert len(workspace.attempts(run_id)) == 6
    row = workspace.write(trials.get_trial, planned[0].trial_id)
    assert (row["status"], row["agent_name"], row["agent_version"]) == ("created", "shopper", "2")
    assert row["model_name"] == "scripted (tiny)"


def test_a_finished_attempt_is_trial_artifacts_and_rollout_in_one(workspace):
    lease, run_id, planned = workspace.begin()
    first = planned[0].trial_id
    workspace.work(trials.start, lease, first, "eval-g000000-00")
    workspace.work(trials.phase, lease, first, "agent")
    assert workspace.attempts(run_id)[0]["phase"] == "agent"
    body = b'{"schemaVersion":1}'
    workspace.work(
        trials.finish, lease, first,
        evidence(0.15, category="wrong_result", stages={"stage_inventory": 1, "stage_checkout": 0}, trajectory=body),
    )  # fmt: skip
    row = workspace.write(trials.get_trial, first)
    assert (row["reward"], row["failure_category"], row["phase"]) == (0.15, "wrong_result", None)
    assert row["stages"] == {"stage_inventory": 1, "stage_checkout": 0}
    assert row["ended_at"] >= row["started_at"]
    artifact = workspace.write(artifacts.get, row["trajectory_artifact_id"])
    assert (artifact.name, artifact.body) == ("trial-1-trajectory.json", body)
    assert row["rollout_id"] is not None


def test_the_same_result_twice_is_kept_once(workspace, database_urls):
    lease, _, planned = workspace.begin()
    workspace.work(trials.start, lease, planned[0].trial_id, "s")
    workspace.work(trials.start, lease, planned[0].trial_id, "s")
    workspace.work(trials.finish, lease, planned[0].trial_id, evidence(1.0))
    workspace.work(trials.finish, lease, planned[0].trial_id, evidence(0.0))
    with psycopg.connect(database_urls["admin"]) as admin:
        assert admin.execute("SELECT count(*), min(reward) FROM rollouts").fetchone() == (1, 1.0)


def test_a_lost_worker_costs_the_attempt_a_row_and_its_late_result_is_dropped(workspace, database_urls):
    lease, run_id, planned = workspace.begin(attempt_count=1)
    trial = planned[0].trial_id
    workspace.work(trials.start, lease, trial, "s")
    with psycopg.connect(database_urls["admin"], autocommit=True) as admin:
        admin.execute("UPDATE jobs SET lease_until = now() - interval '1 second'")
    new = workspace.claim()
    # Before the new worker has closed anything, the old one can write no more already.
    with pytest.raises(LeaseLostError):
        workspace.work(trials.finish, lease, trial, evidence(1.0))
    assert workspace.work(trials.lose, new, run_id, "worker w was lost") == 1
    with pytest.raises(LeaseLostError):
        workspace.work(trials.finish, lease, trial, evidence(1.0))
    with pytest.raises(LeaseLostError):
        workspace.work(trials.start, lease, trial, "s")
    workspace.work(jobs.count_late, lease)
    lost, again = workspace.attempts(run_id)
    assert (lost["status"], lost["reward"], lost["failure_category"]) == ("failed", None, "worker_lost")
    assert (again["status"], again["retry_index"], again["retry_of_id"]) == ("created", 1, lost["id"])
    assert (again["seed"], again["trial_number"]) == (lost["seed"], lost["trial_number"])
    assert workspace.run(run_id)["late_results"] == 1


def test_an_attempt_is_repeated_a_limited_number_of_times(workspace):
    lease, run_id, _ = workspace.begin(attempt_count=1)
    for _ in range(trials.MOST_RETRIES + 1):
        (one,) = workspace.write(trials.planned, run_id)
        workspace.work(trials.start, lease, one.trial_id, "s")
        workspace.work(trials.lose, lease, run_id, "lost")
    assert workspace.write(trials.planned, run_id) == []
    assert [row["retry_index"] for row in workspace.attempts(run_id)] == [0, 1, 2, 3]


def test_a_run_ends_with_its_summary(workspace):
    lease, run_id, planned = workspace.begin(attempt_count=2)
    for one, reward in zip(planned, (1.0, 0.15), strict=True):
        workspace.work(trials.start, lease, one.trial_id, "s")
        workspace.work(trials.finish, lease, one.trial_id, evidence(reward))
    workspace.write(evaluations.conclude, run_id, "succeeded", summarise, database=workspace.worker)
    run = workspace.run(run_id)
    assert (run["status"], run["ended_at"] is not None) == ("succeeded", True)
    assert (run["summary"]["n"], run["summary"]["c"]) == (2, 1)
    assert run["summary"]["passAtK"] == {"1": 0.5, "2": 1.0}


def test_cancelling_a_run_that_waits_ends_it(workspace):
    started = workspace.start()
    run = workspace.write(evaluations.cancel_run, started.evaluation_run_id, "finish_running", summarise)
    assert (run["status"], run["job_state"]) == ("cancelled", "cancelled")
    assert run["summary"]["n"] == 0
    assert workspace.claim() is None


def test_cancelling_a_run_that_runs_asks_its_worker(workspace):
    _, run_id, _ = workspace.begin()
    run = workspace.write(evaluations.cancel_run, run_id, "at_once", summarise)
    assert (run["status"], run["job_state"], run["cancel_mode"]) == ("queued", "running", "at_once")
    with pytest.raises(MissingError):
        workspace.write(evaluations.cancel_run, uuid4(), "at_once", summarise)


def test_lists_go_from_newest_to_oldest_and_on_from_a_row(workspace):
    configuration = workspace.configure()
    ids = [workspace.start(configuration).evaluation_run_id for _ in range(5)]
    first = workspace.write(evaluations.list_runs, before=None, limit=2)
    last = first[-1]
    rest = workspace.write(evaluations.list_runs, before=(last["created_at"], last["id"]), limit=10)
    assert [row["id"] for row in [*first, *rest]] == ids[::-1]
    assert workspace.write(evaluations.list_runs, before=None, limit=9, status="running") == []
    found = workspace.write(evaluations.list_configurations, before=None, limit=9, environment_id=uuid4())
    assert found == []


def test_trials_are_found_by_what_they_are(workspace):
    lease, run_id, planned = workspace.begin(attempt_count=3)
    workspace.work(trials.start, lease, planned[0].trial_id, "s")
    workspace.work(trials.finish, lease, planned[0].trial_id, evidence(0.0, category="wrong_result"))

    def found(**filters):
        rows = workspace.write(trials.list_trials, before=None, limit=10, **filters)
        return {row["id"] for row in rows}

    everything = {one.trial_id for one in planned}
    assert found() == found(evaluation_run_id=run_id, environment_id=workspace.environment, mode="eval") == everything
    assert found(failure_category="wrong_result") == {planned[0].trial_id}
    assert found(status="created") == everything - {planned[0].trial_id}
    assert found(training_run_id=uuid4()) == set()
    rows = workspace.write(trials.list_trials, before=None, limit=10)
    assert {row["pass_threshold"] for row in rows} == {1.0}
    around = workspace.write(trials.neighbours, workspace.write(trials.get_trial, planned[1].trial_id))
    assert around == {"earlier_id": planned[0].trial_id, "later_id": planned[2].trial_id}


def test_trials_of_another_organization_are_missing(workspace, two_organizations):
    _, run_id, planned = workspace.begin()
    with pytest.raises(MissingError):
        workspace.write(trials.get_trial, planned[0].trial_id, scope=two_organizations.b)
    assert workspace.write(trials.attempts, run_id, scope=two_organizations.b) == []
    with pytest.raises(MissingError):
        workspace.write(evaluations.get_run, run_id, scope=two_organizations.b)
