import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.errors import TaskError
from relaxforge.tasks.dataset import Dataset
from relaxforge.tasks.rows import RowShape
from relaxforge.tasks.source import TaskSource


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "seven.jsonl"
    path.write_text("".join(json.dumps({"metadata": {"n": n}}) + "\n" for n in range(7)))
    return Dataset(path, RowShape())


def indices(source, count):
    return [task.index for task in source.take(count)]


def test_tasks_come_in_file_order_and_wrap_around(seven):
    source = TaskSource(seven)
    assert indices(source, 5) == [0, 1, 2, 3, 4]
    assert indices(source, 5) == [5, 6, 0, 1, 2]
    assert source.position() == {"epoch": 1, "index": 3, "size": 7}


def test_one_take_may_span_several_epochs(seven):
    assert indices(TaskSource(seven), 15) == [*range(7), *range(7), 0]


def test_each_epoch_is_shuffled_anew_and_complete(seven):
    source = TaskSource(seven, shuffle=True, seed=3)
    first, second = indices(source, 7), indices(source, 7)
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second


def test_the_order_depends_on_the_seed(seven):
    orders = {tuple(indices(TaskSource(seven, shuffle=True, seed=seed), 7)) for seed in range(5)}
    assert len(orders) > 1
    assert indices(TaskSource(seven, shuffle=True, seed=1), 7) == indices(TaskSource(seven, shuffle=True, seed=1), 7)


@given(before=st.integers(0, 30), after=st.integers(1, 30), shuffle=st.booleans())
def test_a_restored_source_goes_on_where_the_saved_one_stopped(seven, before, after, shuffle):
    saved = TaskSource(seven, shuffle=shuffle, seed=5)
    saved.take(before)
    restored = TaskSource(seven, shuffle=shuffle, seed=5)
    restored.restore(json.loads(json.dumps(saved.position())))
    assert indices(restored, after) == indices(saved, after)


def test_a_position_of_another_dataset_is_refused(seven):
    with pytest.raises(TaskError, match="has 7 rows, but the position to resume from was saved with 9"):
        TaskSource(seven).restore({"epoch": 0, "index": 0, "size": 9})


def test_a_task_can_be_fetched_again_by_its_row(seven):
    source = TaskSource(seven)
    assert len(source) == 7
    assert source[4].metadata == {"n": 4}


@pytest.mark.parametrize("saved", [{}, {"epoch": 0, "index": 0, "size": 7, "more": 1}])
def test_what_is_no_position_is_a_mistake_by_name(seven, saved):
    with pytest.raises(TaskError, match="the position to resume from is not one"):
        TaskSource(seven).restore(saved)
