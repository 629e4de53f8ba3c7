"""From configuration to an engine that is not started yet; torch stays out of this process."""

from __future__ import annotations

from relaxforge.core.ports import Engine, Tokenizer
from relaxforge.engine.config import EngineConfig, Workload
from relaxforge.engine.folder import read_facts
from relaxforge.engine.local.engine import LocalEngine
from relaxforge.engine.scripted.engine import ScriptedEngine
from relaxforge.engine.scripted.rules import read_rules

__all__ = ["Workload", "create_engine"]


def create_engine(
    config: EngineConfig, folder: str, tokenizer: Tokenizer, end_of_turn_id: int, workload: Workload,
    log_path: str | None = None, weight_version: int = 0,
) -> Engine:  # fmt: skip
    """The engine that ``config`` names, for the model in ``folder``; ``log_path`` receives an engine process's output.

    ``weight_version`` is that of the weights in ``folder``. Errors: ``ConfigError``.
    """
    if config.engine == "local":
        return LocalEngine(
            folder, config, workload, end_of_turn_id=end_of_turn_id, log_path=log_path, weight_version=weight_version
        )
    facts = read_facts(folder)
    limits = [limit for limit in (workload.max_context, facts.max_context) if limit is not None]
    return ScriptedEngine(
        read_rules(config.scripted_replies), tokenizer, end_of_turn_id, vocab_size=facts.vocab_size,
        max_context=min(limits, default=None), weight_version=weight_version,
    )  # fmt: skip
