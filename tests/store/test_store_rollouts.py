"""Exports out of the store: complete, of one moment, of one organization, a few rows in memory at a time."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from rollout_rows import BEGIN, Rows

from relaxforge.core.errors import StorageError
from relaxforge.store import artifacts, rollouts
from relaxforge.store.database import Database
from relaxforge.store.errors import InvalidError, MissingError
from relaxforge.store.rollouts import Counts, Filter

KINDS = ("all", "successful", "failed", "recovery")


@dataclass
class Ids:
    """Lines that are the ids of their rollouts; ``seen`` keeps what came, batch by batch."""

    bodies: frozenset = frozenset()
    pairs: str | None = None
    seen: list = field(default_factory=list)

    def write(self, *group):
        self.seen.append(group)
        return " ".join(rollout.id for rollout in group).encode() + b"\n"


@pytest.fixture
def connection(database_urls):
    with psycopg.connect(database_urls["admin"], autocommit=True) as opened:
        yield opened


@pytest.fixture
def rows(connection, two_organizations):
    return Rows(connection, two_organizations.a.organization_id)


@pytest.fixture
def export(app_database, two_organizations, on_loop):
    """Runs an export and gives what it says and its lines."""

    def run(chosen=None, shape=None, scope=None, **given):
        made = on_loop(
            rollouts.spool(app_database, scope or two_organizations.a, chosen or Filter(), shape or Ids(), **given)
        )
        with made.file as file:
            data = file.read()
        assert made.size == len(data)
        assert made.sha256 == hashlib.sha256(data).hexdigest()
        lines = data.decode().splitlines()
        assert made.rows == len(lines)
        return made, lines

    return run


@pytest.fixture
def count(app_database, two_organizations, on_loop):
    async def run(chosen, scope):
        async with app_database.snapshot(scope) as tx:
            return await rollouts.counts(tx, chosen)

    return lambda chosen=None, scope=None: on_loop(run(chosen or Filter(), scope or two_organizations.a))


@pytest.fixture
def scored(rows):
    """One rollout of each sort, in one run of one version; their ids by name."""
    version = rows.version(rows.environment())
    run = rows.run(version)
    rewards = {"none": None, "beyond": None, "zero": 0.0, "little": 0.15, "nearly": 0.9999, "one": 1.0}
    return {
        name: rows.rollout(
            reward, run=run, version=version, minute=minute,
            reward_status="out_of_range" if name == "beyond" else "scored" if reward is not None else "not_scored",
        )
        for minute, (name, reward) in enumerate(rewards.items())
    }  # fmt: skip


def test_each_kind_holds_what_its_rule_says_newest_first(scored, export):
    assert export(Filter("all"))[1] == list(scored.values())[::-1]
    assert export(Filter("successful"))[1] == [scored["one"]]
    assert export(Filter("failed"))[1] == [scored["nearly"], scored["little"], scored["zero"]]
    assert export(Filter("recovery"))[1] == [scored["nearly"], scored["little"]]
    assert export(Filter("preference"), Ids(pairs="version"))[1] == [f"{scored['one']} {scored['zero']}"]


def test_counts_say_before_what_the_files_hold(scored, export, count):
    assert count() == Counts(6, 1, 3, 2, 1, 2, 1)
    for kind in KINDS:
        made, lines = export(Filter(kind))
        assert made.total == len(lines) == getattr(count(), kind)
    assert export(Filter("preference"), Ids(pairs="version"))[0].total == count().preference


def test_another_organization_gets_nothing_and_is_told_nothing(scored, export, count, two_organizations):
    for kind in KINDS:
        assert export(Filter(kind), scope=two_organizations.b)[1] == []
    assert export(Filter("preference"), Ids(pairs="task"), two_organizations.b)[1] == []
    assert count(scope=two_organizations.b) == Counts(0, 0, 0, 0, 0, 0, 0)


def test_a_rollout_of_another_organization_is_missing(scored, app_database, two_organizations, on_loop):
    async def read(scope, rollout_id):
        async with app_database.snapshot(scope) as tx:
            return await rollouts.get(tx, rollout_id)

    identity = UUID(scored["little"])
    assert on_loop(read(two_organizations.a, identity)).reward == 0.15
    for scope, wanted in ((two_organizations.b, identity), (two_organizations.a, uuid4())):
        with pytest.raises(MissingError, match=f"there is no rollout {wanted}"):
            on_loop(read(scope, wanted))


def test_filters_restrict_files_and_counts_alike(rows, export, count):
    first, second = rows.environment("first"), rows.environment("second")
    version, other = rows.version(first), rows.version(second)
    run, other_run, training = rows.run(version), rows.run(other), rows.training_run()
    a = rows.rollout(0.5, run=run, version=version, minute=1)
    b = rows.rollout(0.5, run=other_run, version=other, minute=2)
    c = rows.rollout(0.5, training_run=training, minute=3)
    for chosen, expected in [
        ({"environment_id": first}, [a]),
        ({"environment_version_id": other}, [b]),
        ({"evaluation_run_id": run}, [a]),
        ({"training_run_id": training}, [c]),
        ({"since": BEGIN + timedelta(minutes=2)}, [c, b]),
        ({"until": BEGIN + timedelta(minutes=2)}, [a]),
        ({"environment_id": second, "evaluation_run_id": run}, []),
    ]:
        assert export(Filter("recovery", **chosen))[1] == expected
        assert count(Filter(**chosen)).recovery == len(expected)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_cursors_lead_through_everything_once_also_through_equal_times(rows, export, most):
    run = rows.run(rows.version(rows.environment()))
    ids = {rows.rollout(0.5, run=run, minute=minute // 3) for minute in range(7)}
    found, cursor = [], None
    while True:
        made, lines = export(most=most, cursor=cursor)
        assert made.total == 7
        found += lines
        if not made.truncated:
            break
        cursor = made.next_cursor
    assert len(found) == 7
    assert set(found) == ids


def test_a_cursor_holds_values_so_its_row_may_disappear_and_new_ones_may_come(rows, export, connection):
    run = rows.run(rows.version(rows.environment()))
    ids = [rows.rollout(0.5, run=run, minute=minute) for minute in range(4)]
    made, lines = export(most=2)
    assert lines == [ids[3], ids[2]]
    connection.execute("DELETE FROM rollouts WHERE id = %s", (ids[2],))
    rows.rollout(0.5, run=run, minute=9)
    assert export(most=2, cursor=made.next_cursor)[1] == [ids[1], ids[0]]


def test_at_most_a_thousand_rows_and_never_silently(rows, export):
    run = rows.run(rows.version(rows.environment()))
    for minute in range(1_001):
        rows.rollout(0.5, run=run, minute=minute)
    made, lines = export()
    assert (made.rows, made.total, made.truncated) == (1_000, 1_001, True)
    rest, last = export(cursor=made.next_cursor)
    assert (rest.rows, rest.total, rest.truncated) == (1, 1_001, False)
    assert len({*lines, *last}) == 1_001


@pytest.mark.parametrize("cursor", ["x", "e30", "ünicode", "W10", "WzEsMiwzLDRd", "a" * 5_000])
def test_a_cursor_that_is_not_ours_is_refused(export, cursor):
    with pytest.raises(InvalidError, match="cursor is none that an export returned; leave it out"):
        export(cursor=cursor)


def test_a_cursor_belongs_to_its_sort_of_export(scored, export):
    made, _ = export(most=1)
    with pytest.raises(InvalidError, match="cursor belongs to another kind of export"):
        export(Filter("preference"), Ids(pairs="version"), cursor=made.next_cursor)


def test_an_export_shows_one_moment_although_rows_arrive_meanwhile(rows, export):
    run = rows.run(rows.version(rows.environment()))
    ids = [rows.rollout(0.5, run=run, minute=minute) for minute in range(150)]

    class Busy(Ids):
        def write(self, *group):
            if len(self.seen) < 3:
                rows.rollout(0.5, run=run, minute=-1)
                rows.rollout(0.5, run=run, minute=999)
            return super().write(*group)

    made, lines = export(shape=Busy())
    assert lines == ids[::-1]
    assert made.total == 150
    assert len(export()[1]) == 156


def test_rows_that_a_shape_cannot_tell_are_counted_as_left_out(scored, export):
    class Scored(Ids):
        def write(self, rollout):
            return None if rollout.reward is None else super().write(rollout)

    made, _ = export(shape=Scored())
    assert (made.rows, made.left_out, made.total) == (4, 2, 6)


def test_bodies_come_as_they_were_stored_or_are_missing_and_no_file_fails_for_it(rows, export, connection, tmp_path):
    run = rows.run(rows.version(rows.environment()))
    (tmp_path / "kept").write_bytes(b"elsewhere")
    kept = [
        rows.artifact(b"\x00body\xff"),
        rows.artifact(b"elsewhere", uri=f"file://{tmp_path}/kept"),
        rows.artifact(b"gone", uri=f"file://{tmp_path}/gone"),
        rows.artifact(b"changed"),
    ]
    connection.execute("UPDATE artifacts SET body = 'other' WHERE id = %s", (kept[3],))
    for minute, artifact in enumerate([*kept, None]):
        rows.rollout(0.5, run=run, minute=-minute, trajectory=artifact, session=artifact)
    shape = Ids(frozenset({"trajectory", "session"}))
    export(shape=shape)
    found = [(rollout.trajectory_status, rollout.trajectory, rollout.session) for (rollout,) in shape.seen]
    assert found == [
        ("present", b"\x00body\xff", b"\x00body\xff"), ("present", b"elsewhere", b"elsewhere"), ("missing", None, None),
        ("missing", None, None), ("none", None, None),
    ]  # fmt: skip
    narrow = Ids()
    export(shape=narrow)
    assert [rollout.trajectory_status for (rollout,) in narrow.seen] == ["present"] * 4 + ["none"]
    assert {rollout.trajectory for (rollout,) in narrow.seen} == {None}


def test_artifacts_in_a_folder_are_read_from_there(database_urls, rows, two_organizations, on_loop, tmp_path):
    async def run():
        database = Database(database_urls["app"], artifact_url=f"file://{tmp_path}")
        async with database:
            async with database.scope(two_organizations.a) as tx:
                artifact = await artifacts.put(tx, "t.json", "application/json", b"body")
            rows.rollout(0.5, run=rows.run(rows.version(rows.environment())), trajectory=artifact)
            shape = Ids(frozenset({"trajectory"}))
            (await rollouts.spool(database, two_organizations.a, Filter(), shape)).file.close()
            return shape.seen[0][0].trajectory

    assert on_loop(run()) == b"body"


def test_large_bodies_are_held_a_few_at_a_time(rows, export):
    run = rows.run(rows.version(rows.environment()))
    for minute in range(6):
        rows.rollout(0.5, run=run, minute=minute, trajectory=rows.artifact(bytes([minute]) * 3_000_000))
    held = []

    class Weighing(Ids):
        def write(self, rollout):
            held.append(len(rollout.trajectory))
            return b"x" * 2_000_000 + b"\n"

    made, _ = export(shape=Weighing(frozenset({"trajectory"})))
    assert held == [3_000_000] * 6
    assert made.size == 6 * 2_000_001


def test_a_database_that_goes_away_in_the_middle_fails_the_whole_export(rows, export, connection):
    run = rows.run(rows.version(rows.environment()))
    for minute in range(150):
        rows.rollout(0.5, run=run, minute=minute)

    class Cut(Ids):
        def write(self, *group):
            if not self.seen:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'relaxforge_app' "
                    "AND datname = current_database()"
                )
            return super().write(*group)

    with pytest.raises(StorageError, match="the database did not answer"):
        export(shape=Cut())
    assert len(export()[1]) == 150


def test_single_rollouts_carry_what_the_answer_needs(rows, app_database, two_organizations, on_loop):
    version = rows.version(rows.environment())
    run = rows.run(version)
    stages = json.dumps({"stage_inventory": 1, "stage_checkout": 0, "stage_price": 0.5})
    identity = rows.rollout(0.15, run=run, version=version, stages=stages, failure_category="wrong_result")

    async def read():
        async with app_database.snapshot(two_organizations.a) as tx:
            return await rollouts.get(tx, UUID(identity))

    found = on_loop(read())
    assert (found.id, found.seed, found.reward) == (identity, 0, 0.15)
    assert (found.environment_version_id, found.evaluation_run_id) == (str(version), str(run))
    assert found.stages == {"stage_inventory": 1, "stage_checkout": 0, "stage_price": 0.5}
    assert [type(value) for _, value in sorted(found.stages.items())] == [int, int, float]
    assert (found.agent_name, found.failure_category, found.created_at) == ("shopper", "wrong_result", BEGIN)


def pairs(export, by="version", **chosen):
    return [tuple(line.split()) for line in export(Filter("preference", **chosen), Ids(pairs=by))[1]]


def test_pairs_are_the_best_against_the_worst_of_each_version_newest_version_first(rows, export):
    environment = rows.environment()
    old, new, tied, alone, unscored = (rows.version(environment, number) for number in range(1, 6))
    made = {}
    for version, rewards in ((old, (0.2, 0.9, 0.5)), (new, (1.0, 0.0)), (tied, (0.5, 0.5)), (alone, (1.0,))):
        run = rows.run(version)
        made[version] = {reward: rows.rollout(reward, run=run, version=version) for reward in rewards}
        rows.rollout(None, run=run, version=version)
    rows.rollout(None, run=rows.run(unscored), version=unscored)
    rows.rollout(1.0, training_run=rows.training_run())
    rows.rollout(0.0, training_run=rows.training_run())
    expected = [(made[new][1.0], made[new][0.0]), (made[old][0.9], made[old][0.2])]
    assert pairs(export) == expected
    assert pairs(export, "task") == expected
    assert pairs(export, environment_version_id=old) == expected[1:]
    assert pairs(export, environment_id=environment) == expected
    assert pairs(export, environment_id=uuid4()) == []
    made, lines = export(Filter("preference"), Ids(pairs="version"), most=1)
    assert (made.rows, made.total, made.truncated) == (1, 2, True)
    rest, last = export(Filter("preference"), Ids(pairs="version"), most=1, cursor=made.next_cursor)
    assert (rest.rows, rest.total, rest.truncated) == (1, 2, False)
    assert [tuple(line.split()) for line in lines + last] == expected


def test_of_equal_rewards_the_newest_best_meets_the_oldest_worst(rows, export):
    version = rows.version(rows.environment())
    run = rows.run(version)
    worst = [rows.rollout(0.0, run=run, version=version, minute=minute) for minute in (1, 2, 2)]
    best = [rows.rollout(1.0, run=run, version=version, minute=minute) for minute in (3, 5, 5)]
    expected = [(max(best[1:]), worst[0])]
    assert pairs(export) == expected
    assert pairs(export, "task") == expected


def test_pairs_see_only_what_the_filter_lets_through(rows, export, count):
    version = rows.version(rows.environment())
    first, second = rows.run(version), rows.run(version)
    a = rows.rollout(1.0, run=first, version=version, minute=1)
    b = rows.rollout(0.5, run=first, version=version, minute=2)
    c = rows.rollout(0.0, run=second, version=version, minute=3)
    for chosen, expected in [
        ({}, [(a, c)]),
        ({"evaluation_run_id": first}, [(a, b)]),
        ({"evaluation_run_id": second}, []),
        ({"since": BEGIN + timedelta(minutes=2)}, [(b, c)]),
    ]:
        assert pairs(export, **chosen) == expected
        assert pairs(export, "task", **chosen) == expected
        assert count(Filter(**chosen)).preference == len(expected)


def test_pairs_by_task_compare_attempts_at_the_same_task_alone(rows, export):
    version = rows.version(rows.environment())
    run = rows.run(version)
    made = {
        (task, reward): rows.rollout(reward, run=run, version=version, task=task)
        for task, rewards in enumerate([(1.0, 0.5), (0.75, 0.0), (0.3,), (0.2, 0.9)])
        for reward in rewards
    }
    expected = [
        (made[0, 1.0], made[0, 0.5]), (made[1, 0.75], made[1, 0.0]), (made[3, 0.9], made[3, 0.2]),
    ]  # fmt: skip
    assert pairs(export, "task") == expected
    assert pairs(export) == [(made[0, 1.0], made[1, 0.0])]
    found, cursor = [], None
    for _ in range(3):
        step, lines = export(Filter("preference"), Ids(pairs="task"), most=1, cursor=cursor)
        cursor = step.next_cursor
        found += [tuple(line.split()) for line in lines]
    assert cursor is None
    assert found == expected
