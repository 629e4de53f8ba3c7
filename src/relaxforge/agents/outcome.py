"""How a Session's agent ended: its output, or the error that says what went wrong and in which category."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from relaxforge.agents.config import AgentConfig
from relaxforge.agents.output import read_output
from relaxforge.agents.sandbox import collapsed
from relaxforge.agents.text import log_tail, redact
from relaxforge.core.errors import AgentError, AgentExecutionError
from relaxforge.core.ids import Credential
from relaxforge.core.sessions import AgentExit, AgentLaunch, AgentOutput, FailureCategory

_EXIT_HINTS: Mapping[int, str] = {
    126: "; the shell found the command but may not execute it",
    127: "; the shell did not find a command: check --agent-command, --agent-cwd and the agent's PATH",
}


def judge(
    launch: AgentLaunch,
    ended: AgentExit,
    config: AgentConfig,
    *,
    requests: int,
    ended_by: FailureCategory | None = None,
) -> AgentOutput:
    """What the agent left, when it ended as it should.

    ``ended_by`` is the reason for which we ended it ourselves, ``requests`` the number of model requests that arrived
    with its credential. Reads files: call it in a thread. Errors: ``AgentExecutionError`` with the end of run.log.
    """
    try:
        if ended.code == 1 and not requests and ended_by is None and (why := collapsed(launch)):
            raise AgentError(f"there could be no sandbox around the agent: {why}", FailureCategory.ENV_SETUP)
        _require_sound_end(ended, config, requests, ended_by)
        return read_output(launch.output_path)
    except AgentError as error:
        secret = secret_of(launch)
        message = redact(f"Session {launch.session_id}: {error}", secret)
        tail = log_tail(launch.log_path, config.log_tail_bytes, secret)
        raise AgentExecutionError(message, error.category, tail) from None


def secret_of(launch: AgentLaunch) -> str:
    """The half of the credential that must never be written; "" when the launch carries none."""
    credential = Credential.parse(launch.env.get("RELAX_SESSION_ID", ""))
    return credential.secret if credential else ""


def _require_sound_end(ended: AgentExit, config: AgentConfig, requests: int, ended_by: FailureCategory | None) -> None:
    if ended_by is not None:
        raise AgentError(_reason(ended_by, ended, config), ended_by)
    if ended.signal is not None:
        raise AgentError(f"the agent was killed by {_signal_name(ended.signal)}", FailureCategory.AGENT_ERROR)
    if ended.code:
        hint = _EXIT_HINTS.get(ended.code, "")
        raise AgentError(f"the agent exited with status {ended.code}{hint}", FailureCategory.AGENT_ERROR)
    if not requests:
        raise AgentError(
            "the agent exited without any model request; it must send them to RELAX_BASE_URL with RELAX_SESSION_ID as "
            "its API key",
            FailureCategory.NO_REQUEST,
        )


def _reason(ended_by: FailureCategory, ended: AgentExit, config: AgentConfig) -> str:
    if ended_by is FailureCategory.AGENT_TIMEOUT:
        return (
            f"the agent was ended after {config.agent_timeout:g} active seconds (--agent-timeout; in an evaluation "
            f"timeoutS of the budget or timeout_s of the agent; {ended.duration_s:.1f} s since launch)"
        )
    if ended_by is FailureCategory.STARTUP_TIMEOUT:
        return (
            f"the agent sent no model request within {config.agent_startup_timeout or 0:g} s of its launch "
            "(--agent-startup-timeout; in an evaluation startup_timeout_s of the agent)"
        )
    return f"the agent was ended after {ended.duration_s:.1f} s: {ended_by.value.replace('_', ' ')}"


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name} (is the machine out of memory?)" if number == signal.SIGKILL else name
