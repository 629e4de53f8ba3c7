"""``GET /models`` in the shapes of OpenAI, Anthropic and Codex at once: every client finds its own keys."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec


def model_list(models: tuple[str, ...]) -> bytes:
    """The answer for these names. Fields that we know nothing about hold the value that asks the least of a model."""
    created = int(time.time())
    stamp = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    entries = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "relaxforge",
            "type": "model",
            "display_name": name,
            "created_at": stamp,
        }
        for name in models
    ]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": entries,
            "has_more": False,
            "first_id": models[0],
            "last_id": models[-1],
            "models": [_codex(name) for name in models],
        }
    )


def _codex(name: str) -> dict[str, Any]:
    """What Codex's own model list holds; it falls back to guesses about a model when one of these is missing."""
    return {
        "slug": name,
        "display_name": name,
        "description": None,
        "default_reasoning_level": None,
        "supported_reasoning_levels": [],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": "",
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "experimental_supported_tools": [],
    }
