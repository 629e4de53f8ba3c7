import asyncio
from pathlib import Path

import pytest
import structlog

from relaxforge.core.errors import StorageError
from relaxforge.observe.log import bound, configure, get_logger


@pytest.fixture(autouse=True)
def unconfigured():
    yield
    structlog.reset_defaults()


def fields(line):
    """A logfmt line as a dict (no spaces in the values of these tests)."""
    return dict(word.split("=", 1) for word in line.split())


def test_an_event_is_one_line_of_key_value_pairs(tmp_path):
    configure(tmp_path / "events.log")
    get_logger().info("session_started", session_id="s1", attempt=2)
    [line] = (tmp_path / "events.log").read_text().splitlines()
    assert {**fields(line), "time": ""} == {
        "time": "",
        "level": "info",
        "event": "session_started",
        "session_id": "s1",
        "attempt": "2",
    }


def test_values_with_line_breaks_and_control_characters_stay_on_their_line(tmp_path):
    configure(tmp_path / "events.log")
    get_logger().info("agent_said", text="one\ntwo = \ud800 \x1b[31m")
    assert len((tmp_path / "events.log").read_text().splitlines()) == 1


def test_accounting_end_is_on_the_console_in_the_form_of_the_guide(tmp_path, capsys):
    configure(tmp_path / "events.log")
    get_logger().info("accounting_end", rollout=0, groups=8, rows=64, debt=0, resident_groups=0, interrupted_groups=0)
    assert capsys.readouterr().out == (
        "AGENTIC ROLLOUT event=accounting_end rollout=0 groups=8 rows=64 debt=0 "
        "resident_groups=0 interrupted_groups=0\n"
    )
    assert "event=accounting_end rollout=0 groups=8" in (tmp_path / "events.log").read_text()


def test_only_warnings_and_errors_reach_the_console(tmp_path, capsys):
    configure(tmp_path / "events.log")
    get_logger().info("quiet", a=1)
    get_logger().warning("group_dropped", group_id="g1", reason="it broke")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == 'warning: event=group_dropped group_id=g1 reason="it broke"\n'


def test_an_exception_is_kept_with_its_traceback_in_the_file_only(tmp_path, capsys):
    configure(tmp_path / "events.log")
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger().exception("reward_failed")
    assert "ValueError: broken" in (tmp_path / "events.log").read_text()
    assert capsys.readouterr().err == "error: event=reward_failed\n"


def test_without_a_file_the_console_gets_the_traceback(capsys):
    configure(None)
    try:
        raise KeyError("lost")
    except KeyError:
        get_logger().exception("it_broke")
    err = capsys.readouterr().err
    assert "error: event=it_broke" in err
    assert "Traceback" in err
    assert "KeyError: 'lost'" in err


def test_events_below_the_level_are_left_out(tmp_path):
    configure(tmp_path / "events.log", level="warning")
    get_logger().info("quiet")
    assert not (tmp_path / "events.log").exists()


def test_bound_ids_follow_the_task_and_not_its_neighbour(tmp_path):
    configure(tmp_path / "events.log")

    async def session(name, both_bound):
        with bound(session_id=name):
            await both_bound.wait()
            get_logger().info("turn", name=name)

    async def two_sessions():
        both_bound = asyncio.Barrier(2)
        await asyncio.gather(session("a", both_bound), session("b", both_bound))
        get_logger().info("turn", name="none")

    asyncio.run(two_sessions())
    lines = [fields(line) for line in (tmp_path / "events.log").read_text().splitlines()]
    assert {line["name"]: line.get("session_id") for line in lines} == {"a": "a", "b": "b", "none": None}


def test_a_log_that_cannot_be_written_is_a_storage_error(tmp_path):
    configure(tmp_path / "missing" / "events.log")
    with pytest.raises(StorageError, match=r"events\.log cannot be written: No such file"):
        get_logger().info("anything")


def test_a_full_disk_is_a_storage_error():
    configure(Path("/dev/full"))
    with pytest.raises(StorageError, match="No space left on device; free some space and resume"):
        get_logger().info("anything")
