"""Agent settings that are refused, and which folders stay."""

from __future__ import annotations

from typing import Any

import pytest

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"agent_timeout": -1.0}, "--agent-timeout must be > 0 seconds, got -1"),
        ({"agent_timeout": float("nan")}, "--agent-timeout must be > 0 seconds, got nan"),
        ({"agent_startup_timeout": 0.0}, "--agent-startup-timeout must be > 0 seconds, got 0"),
        ({"agent_kill_grace": -0.1}, "--agent-kill-grace must be between 0 and 3600 seconds"),
        ({"agent_log_tail_kb": -1}, "--agent-log-tail-kb must be >= 0 KiB"),
        ({"agent_log_limit_mb": 0}, "--agent-log-limit-mb must be at least 1 MiB"),
        ({"agent_env": ("=x",)}, "'=x' has no name; write KEY=VALUE"),
        ({"agent_env": ("",)}, "'' has no name"),
        ({"agent_env": ("A=1", "RELAX_BASE_URL=http://x")}, "RELAX_BASE_URL: names with RELAX_ are reserved"),
        ({"agent_env": ("RELAX_",)}, "names with RELAX_ are reserved"),
        ({"agent_env": ("A=\0",)}, "NUL character"),
    ],
)
def test_settings_out_of_range_name_their_flag(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AgentConfig(**settings)


def test_defaults_and_limits_without_a_value_are_accepted() -> None:
    config = AgentConfig(agent_startup_timeout=None, agent_kill_grace=0.0, agent_log_tail_kb=0, agent_env=("A", "B="))
    assert config.log_tail_bytes == 0
    assert AgentConfig().log_tail_bytes == 8192


@pytest.mark.parametrize(("keep", "kept"), [("failed", (True, False)), ("all", (True, True)), ("none", (False, False))])
def test_which_session_folders_stay(keep: Any, kept: tuple[bool, bool]) -> None:
    config = AgentConfig(keep_session_dirs=keep)
    assert (config.keeps_folder(failed=True), config.keeps_folder(failed=False)) == kept
