"""From a dump line and a log to everything that is kept of an attempt, cleaned before it is stored."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from relaxforge.core.evidence import RewardStatus, TrialEvidence, Verdict
from relaxforge.core.sessions import INFRASTRUCTURE
from relaxforge.core.text import Cleaner
from relaxforge.export.log import LOG_LIMIT_BYTES, Log
from relaxforge.export.trajectory import steps_of, trajectory_file


def evidence_of(
    line: Mapping[str, Any],
    log: Log,
    *,
    secrets: Iterable[str] = (),
    log_limit_bytes: int = LOG_LIMIT_BYTES,
    extra_steps: Iterable[Mapping[str, Any]] | None = None,
) -> TrialEvidence:
    """The evidence of the Session in ``line``. ``secrets`` are the values that its agent, world and evaluator got.

    ``extra_steps`` are the steps that the agent appended, ``None`` takes those of the line.
    """
    cleaner = Cleaner(secrets)
    session = _clean_session(line, cleaner)
    extra = None if extra_steps is None else cleaner.value(list(extra_steps))
    steps = steps_of(session, extra)
    text, log_truncated = log.within(log_limit_bytes, cleaner)
    prompt_tokens, completion_tokens = usage_of(line)
    failure = session.get("failure")
    durations = {phase: seconds for phase, seconds in session["duration_s"].items() if seconds is not None}
    return TrialEvidence(
        status=session["status"],
        verdict=verdict_of(session),
        trajectory=trajectory_file(text, steps),
        session=msgspec.json.encode(session),
        step_count=len(steps),
        log_truncated=log_truncated,
        failure_message=failure["message"] if failure else None,
        turns=session["turns"],
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        duration_s=sum(durations.get(phase, 0.0) for phase in ("prepare", "wait", "active", "reward")),
        durations=durations,
        sanitised=dict(cleaner.counts),
    )


def verdict_of(line: Mapping[str, Any]) -> Verdict:
    """What the Session is worth: the evaluator's verdict, or the reward of the line where there is none.

    A failure of ours has no reward. In an evaluation a failure of the agent that nobody scored counts as 0.
    """
    written = line.get("verdict") or {}
    category = (line.get("failure") or {}).get("category")
    detail = line.get("reward_detail")
    raw = written.get("raw_reward") or (None if detail is None else json.dumps(detail, ensure_ascii=False))
    reward, status = _reward(line, written, category)
    return Verdict(
        reward=reward,
        reward_status=status,
        raw_reward=raw,
        stages=written.get("stages") or {} if written else _stages(detail),
        metrics=written.get("metrics") or {},
        failure_category=category if category in INFRASTRUCTURE else written.get("failure_category") or category,
    )


def _stages(detail: Any) -> dict[str, int | float]:
    """The ``stage_*`` numbers of a reward object."""
    rows = detail.items() if isinstance(detail, dict) else ()
    return {name: value for name, value in rows if name.startswith("stage_") and type(value) in (int, float)}


def _reward(
    line: Mapping[str, Any], written: Mapping[str, Any], category: str | None
) -> tuple[float | None, RewardStatus]:
    if category in INFRASTRUCTURE:
        return None, "not_scored"
    if written.get("reward_status") == "out_of_range":
        return None, "out_of_range"
    reward = line.get("reward")
    if reward is None:
        return (0.0, "scored") if category is not None and line["mode"] == "eval" else (None, "not_scored")
    fits = math.isfinite(reward) and 0 <= reward <= 1
    return (float(reward), "scored") if fits else (None, "out_of_range")


def usage_of(line: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens read and written over all Turns: what the provider counted, else what lies in the forest."""
    told = [request["usage"] for request in line.get("requests") or () if request.get("usage")]
    if told:
        prompts = sum(usage.get("prompt_tokens") or 0 for usage in told)
        return prompts, sum(usage.get("completion_tokens") or 0 for usage in told)
    length: dict[str | None, int] = {None: 0}
    read = written = 0
    for state in line.get("forest") or ():
        before = length.get(state["parent"], 0)
        length[state["state"]] = before + len(state["tokens"])
        if state["kind"] == "response":
            read += before
            written += len(state["tokens"])
    return read, written


def _clean_session(line: Mapping[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    """The line with clean texts. Token ids spell their text, so a State that held a secret keeps none of its own."""
    hidden: set[str] = set()
    forest = []
    for state in line.get("forest") or ():
        before = cleaner.counts["secret"]
        message = cleaner.value(state["message"])
        told = cleaner.counts["secret"] > before
        if told:
            hidden.add(state["state"])
        forest.append({**state, "message": message, **(_NO_TOKENS if told else {}), "redacted": told})
    samples = cleaner.value(line.get("samples") or [])
    if hidden:
        samples = [{**sample, "tokens": [], "loss_mask": [], "logprobs": []} for sample in samples]
    done = {"forest": forest, "samples": samples}
    return {key: done[key] if key in done else cleaner.value(value) for key, value in line.items()}


_NO_TOKENS: dict[str, Any] = {"tokens": [], "logprobs": []}
