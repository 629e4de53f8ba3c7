"""Explicit export records as canonical requests, so that they match with the gateway's own identity."""

from __future__ import annotations

from collections import Counter

from relaxforge.core.errors import AgentError, RequestError
from relaxforge.core.messages import ModelRequest, RetryHint
from relaxforge.core.sessions import AgentOutput, ExportRecord, FailureCategory
from relaxforge.forest.config import HistoryConfig
from relaxforge.forest.forest import SessionForest
from relaxforge.forest.select import Context, explicit_context, implicit_context
from relaxforge.gateway.canonical import is_meant, read_message, read_template_kwargs, read_tools


def export(forest: SessionForest, output: AgentOutput, history: HistoryConfig, *, one: bool) -> tuple[Context, ...]:
    """The Contexts that an output selects; with ``one``, no more than one.

    Errors: ``AgentError`` (``export_mismatch``, ``bad_output``).
    """
    if output.records is None:
        return (implicit_context(forest, history.agentic_implicit_export),)
    if one and len(output.records) > 1:
        names = ", ".join(repr(record.name) for record in output.records)
        raise AgentError(
            f"the output exports {len(output.records)} Contexts ({names}); a training Session exports one, because one "
            "reward does not say how much credit each Context should get. `relaxforge rollout` takes any number",
            FailureCategory.BAD_OUTPUT,
        )
    return tuple(explicit_context(forest, record.name, as_request(record)) for record in output.records)


def as_request(record: ExportRecord) -> ModelRequest:
    """The request whose conversation a record names. Errors: ``AgentError`` ``bad_output``."""
    noted: Counter[str] = Counter()
    try:
        return ModelRequest(
            api="chat",
            model="",
            messages=tuple(
                message
                for index, raw in enumerate(record.messages)
                if is_meant(message := read_message(raw, f"messages[{index}]", noted))
            ),
            retry=RetryHint(b""),
            tools=read_tools(list(record.tools), "tools", noted),
            template_kwargs=read_template_kwargs(record.chat_template_kwargs, "chat_template_kwargs"),
        )
    except RequestError as error:
        raise AgentError(
            f"record {record.name!r} is not in Chat Completions shape: {error}", FailureCategory.BAD_OUTPUT
        ) from error
