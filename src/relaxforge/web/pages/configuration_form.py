"""The form of a new evaluator configuration: plain fields become the JSON that the API takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Form

TEXT = Annotated[str, Form(max_length=2_000)]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What stands in the fields, as text."""

    name: TEXT = ""
    attempt_count: TEXT = "5"
    concurrency: TEXT = "2"
    pass_threshold: TEXT = "1"  # noqa: S105 - a reward
    seed: TEXT = "0"
    world_seed: TEXT = "0"
    agent_name: TEXT = ""
    agent_version: TEXT = ""
    engine: TEXT = "local"
    model: TEXT = "tiny"
    replies: TEXT = ""
    base_url: TEXT = ""
    api_key_secret: TEXT = ""
    timeout_s: TEXT = ""
    max_response_tokens: TEXT = ""
    max_context_tokens: TEXT = ""

    def asked(self, environment_id: UUID) -> dict[str, Any]:
        """The body of ``POST /evaluator-configurations``, not checked yet."""
        return {
            "environmentId": str(environment_id),
            "name": self.name,
            "attemptCount": self.attempt_count,
            "concurrency": self.concurrency,
            "passThreshold": self.pass_threshold,
            "seed": self.seed or 0,
            "worldSeed": self.world_seed or 0,
            "agentName": self.agent_name,
            "agentVersion": self.agent_version,
            "model": self._model,
            "budget": self._budget,
        }

    @property
    def _model(self) -> dict[str, Any]:
        if self.engine == "upstream":
            return {"upstream": _said(baseUrl=self.base_url, model=self.model, apiKeySecret=self.api_key_secret)}
        return _said(engine=self.engine, model=self.model, replies=self.replies)

    @property
    def _budget(self) -> dict[str, Any]:
        limits = {
            "timeoutS": _number(self.timeout_s),
            "maxResponseTokens": _number(self.max_response_tokens),
            "maxContextTokens": _number(self.max_context_tokens),
        }
        return {name: value for name, value in limits.items() if value is not None}


Given = Annotated[Configuration, Depends(Configuration)]


def first(manifest: Mapping[str, Any]) -> Configuration:
    """What the fields say before anybody wrote in them: the agent of the newest version."""
    agent = manifest.get("agent", {})
    return Configuration(agent_name=agent.get("name", ""), agent_version=str(agent.get("version", "")))


def _said(**fields: str) -> dict[str, str]:
    return {name: value.strip() for name, value in fields.items() if value.strip()}


def _number(text: str) -> float | str | None:
    """A number if it is one; else the text, so that the API says what is wrong with it."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value
