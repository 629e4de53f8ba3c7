"""The verdict on an ended agent: category, words, and a tail of its log without the secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_parts import prepare
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.outcome import judge, secret_of
from relaxforge.agents.text import log_tail, mend, redact
from relaxforge.core.errors import AgentExecutionError
from relaxforge.core.sessions import AgentExit, AgentLaunch, AgentOutput, FailureCategory

CONFIG = AgentConfig(agent_timeout=60.0, agent_startup_timeout=5.0)


@pytest.fixture
def launch(tmp_path: Path) -> AgentLaunch:
    return prepare(tmp_path, "true", "s-0")


def ended(code: int | None = 0, signal: int | None = None) -> AgentExit:
    return AgentExit("s-0", code, signal, 61.25)


def test_a_clean_end_with_a_request_gives_the_output(launch: AgentLaunch) -> None:
    assert judge(launch, ended(), CONFIG, requests=1) == AgentOutput()
    launch.output_path.write_text('{"reward": 1.0}')
    assert judge(launch, ended(), CONFIG, requests=1) == AgentOutput(reward=1.0)


@pytest.mark.parametrize(
    ("end", "requests", "ended_by", "category", "words"),
    [
        (ended(3), 2, None, "agent_error", "exited with status 3$"),
        (ended(127), 0, None, "agent_error", "exited with status 127; the shell did not find a command"),
        (ended(126), 0, None, "agent_error", "exited with status 126; .* may not execute it"),
        (ended(None, 11), 2, None, "agent_error", "was killed by SIGSEGV$"),
        (ended(None, 9), 2, None, "agent_error", "killed by SIGKILL .*out of memory"),
        (ended(None, 63), 2, None, "agent_error", "killed by signal 63"),
        (ended(0), 0, None, "no_request", "without any model request; it must send them to RELAX_BASE_URL"),
        (
            ended(None, 15),
            2,
            "agent_timeout",
            "agent_timeout",
            "after 60 active seconds .--agent-timeout; .*61.2 s since",
        ),
        (ended(0), 0, "startup_timeout", "startup_timeout", "no model request within 5 s .* .--agent-startup-timeout"),
        (ended(None, 15), 1, "cancelled", "cancelled", "was ended after 61.2 s: cancelled"),
    ],
)
def test_every_end_has_its_category(
    launch: AgentLaunch, end: AgentExit, requests: int, ended_by: str | None, category: str, words: str
) -> None:
    reason = FailureCategory(ended_by) if ended_by else None
    with pytest.raises(AgentExecutionError, match=f"^Session s-0: .*{words}") as caught:
        judge(launch, end, CONFIG, requests=requests, ended_by=reason)
    assert caught.value.category == category
    assert caught.value.log_tail == ""


def test_bad_output_comes_with_the_log(launch: AgentLaunch) -> None:
    launch.output_path.write_text('{"reward": NaN}')
    launch.log_path.write_text("thinking\ndone\n")
    with pytest.raises(AgentExecutionError, match="NaN is not a JSON number") as caught:
        judge(launch, ended(), CONFIG, requests=1)
    assert caught.value.category is FailureCategory.BAD_OUTPUT
    assert caught.value.log_tail == "thinking\ndone"
    assert str(caught.value).endswith("--- last output ---\nthinking\ndone")


def test_the_secret_shows_nowhere(launch: AgentLaunch) -> None:
    secret = secret_of(launch)
    assert len(secret) == 30
    launch.log_path.write_text(f"key={launch.env['RELAX_SESSION_ID']}\n")
    launch.output_path.write_text(f'{{"reward": "{secret}"}}')
    with pytest.raises(AgentExecutionError) as caught:
        judge(launch, ended(), CONFIG, requests=1)
    assert secret not in str(caught.value)
    assert caught.value.log_tail == f"key=s-0.{'*' * 30}"


def test_a_tail_is_cut_between_characters(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("é" * 10)
    assert log_tail(log, 5, "") == "éé"
    assert log_tail(log, 20, "") == "é" * 10
    assert log_tail(log, 0, "") == ""
    assert log_tail(tmp_path / "missing", 20, "") == ""


def test_a_tail_is_plain_text(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"10%\r20%\r\nred \x1b[31m\x00 \xff\xed\xa0\x80\tend\n\n")
    assert log_tail(log, 1000, "") == "10%\n20%\nred \ufffd[31m\ufffd " + "\ufffd" * 4 + "\tend"


def test_a_log_that_is_no_file_any_more_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.log").symlink_to("/dev/zero")
    assert log_tail(tmp_path / "run.log", 100, "") == "(no log: run.log is not a regular file)"


@given(text=st.text("ab5\n", max_size=60), limit=st.integers(0, 40), secret=st.text("ab5", min_size=1, max_size=8))
def test_no_cut_lets_a_part_of_the_secret_escape(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit: int, secret: str
) -> None:
    log = tmp_path_factory.mktemp("log") / "run.log"
    log.write_text(text)
    assert log_tail(log, limit, secret) == redact(text, secret)[len(text) - min(limit, len(text)) :].strip("\n")


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_mended_text_is_valid_and_valid_text_is_left_alone(text: str) -> None:
    mended = mend(text)
    mended.encode("utf-8")
    assert mend(mended) == mended
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert mended == text
