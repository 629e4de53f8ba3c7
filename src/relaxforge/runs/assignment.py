"""What an evaluation job is to try, read from its environment version and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relaxforge.core.sessions import Task
from relaxforge.engine.choice import Budget, ModelChoice
from relaxforge.environments.bundle import Bundle


@dataclass(frozen=True, slots=True)
class Assignment:
    """``secrets`` are all of the environment's; agent, world and evaluator get those that the manifest requires."""

    bundle: Bundle
    tasks: tuple[Task, ...]
    choice: ModelChoice
    budget: Budget
    secrets: Mapping[str, str] = field(repr=False)
