"""Tasks for training: in order, and nothing that was taken but not trained is forgotten."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.errors import TaskError
from relaxforge.runs.feed import TaskFeed
from relaxforge.tasks.dataset import Dataset
from relaxforge.tasks.rows import RowShape
from relaxforge.tasks.source import TaskSource

ROWS = 5


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps({"metadata": {"n": n}}) + "\n" for n in range(ROWS)))
    return Dataset(path, RowShape())


def feed_of(dataset):
    return TaskFeed(TaskSource(dataset, shuffle=True, seed=3))


def test_tasks_that_come_back_are_the_next_ones_in_the_order_in_which_they_came_back(dataset):
    feed = TaskFeed(TaskSource(dataset))
    taken = [feed.take() for _ in range(4)]
    feed.give_back(taken[2])
    feed.give_back(taken[0])
    assert [feed.take().index for _ in range(4)] == [2, 0, 4, 0]


def test_a_position_counts_what_came_back_and_not_what_was_consumed(dataset):
    feed = TaskFeed(TaskSource(dataset))
    _, returned = feed.take(), feed.take()
    feed.give_back(returned)
    assert feed.position() == ({"epoch": 0, "index": 2, "size": ROWS}, [1])


@given(moves=st.lists(st.sampled_from(["take", "give back"]), max_size=30), data=st.data())
def test_a_restored_feed_goes_on_as_the_saved_one_would_have(dataset, moves, data):
    feed, held = feed_of(dataset), []
    for move in moves:
        if move == "take":
            held.append(feed.take())
        elif held:
            feed.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
    position, unconsumed = json.loads(json.dumps(feed.position()))
    restored = feed_of(dataset)
    restored.restore(position, unconsumed)
    assert [restored.take().index for _ in range(12)] == [feed.take().index for _ in range(12)]


@given(moves=st.lists(st.sampled_from(["take", "give back", "consume"]), max_size=60), data=st.data())
def test_in_every_epoch_each_task_is_consumed_once_or_still_out(dataset, moves, data):
    feed, out, consumed = feed_of(dataset), [], []
    for move in moves:
        if move == "take":
            out.append(feed.take())
        elif out:
            task = out.pop(data.draw(st.integers(0, len(out) - 1)))
            if move == "consume":
                consumed.append(task.index)
            else:
                feed.give_back(task)
    position, unconsumed = feed.position()
    drawn = position["epoch"] * ROWS + position["index"]
    assert len(consumed) + len(out) + len(unconsumed) == drawn
    everywhere = [*consumed, *(task.index for task in out), *unconsumed]
    assert all(everywhere.count(row) >= position["epoch"] for row in range(ROWS))


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_state_that_names_rows_of_another_dataset_is_refused(dataset, row):
    with pytest.raises(TaskError, match=f"names row {row}, but the dataset has {ROWS}"):
        feed_of(dataset).restore({"epoch": 0, "index": 0, "size": ROWS}, [0, row])
