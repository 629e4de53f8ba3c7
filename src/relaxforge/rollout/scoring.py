"""The Reward stage: what each Session of a Group earned, the filter's word, and the credit that follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxforge.core.errors import AgentError, ConfigError, CreditError, EvaluatorError
from relaxforge.core.evidence import Verdict
from relaxforge.core.messages import chat_message
from relaxforge.core.sessions import Failure, FailureCategory
from relaxforge.credit.config import CreditConfig
from relaxforge.credit.functions import load_function
from relaxforge.credit.group import group_advantages
from relaxforge.credit.reward import RewardFunction, RewardInput, primary
from relaxforge.observe.log import get_logger
from relaxforge.rollout.outcome import Outcome
from relaxforge.rollout.scheduler import Fate
from relaxforge.rollout.trial import Environment, own_verdict, settle

log = get_logger()

FILTER_FLAG = "--dynamic-sampling-filter-path"
NO_REWARD = (
    'the output has no reward and there is no --custom-rm-path; write {"reward": 1.0} to RELAX_OUTPUT_JSON, or name a '
    "reward function"
)


@dataclass(frozen=True, slots=True)
class Score:
    """What Reward says about a Group; ``reason`` is empty for accepted ones."""

    fate: Fate
    reason: str = ""


class Scorer:
    """Scores Groups. A reward function that raises makes a record of the Session, not a crash of the run.

    With an ``environment`` that has an evaluator, that one is asked, and nobody else.
    """

    def __init__(
        self, config: CreditConfig, filter_path: str | None = None, environment: Environment | None = None
    ) -> None:
        self._config = config
        self._environment = environment
        self._function = RewardFunction.load(config)
        self._keeps: Callable[[Sequence[float]], Any] | None = (
            load_function(filter_path, FILTER_FLAG) if filter_path else None
        )

    async def score(self, outcomes: Sequence[Outcome]) -> Score:
        """Give every outcome its reward and advantage, or the Group its reason to go."""
        await asyncio.gather(*(self._reward(outcome) for outcome in outcomes))
        failed = next((outcome for outcome in outcomes if outcome.failure is not None), None)
        if failed is not None and failed.failure is not None:
            category = failed.failure.category
            return Score("failed", f"group_dropped: {failed.session.session_id} {category}")
        rewards = {outcome.session.session_id: outcome.reward or 0.0 for outcome in outcomes}
        if outcomes[0].session.identity.mode == "eval":
            return Score("accepted")
        if self._keeps is not None and not self._filter(list(rewards.values())):
            return Score("filtered", f"filtered: {FILTER_FLAG}")
        advantages = group_advantages(rewards, self._config)
        for outcome in outcomes:
            outcome.advantage = advantages[outcome.session.session_id]
        return Score("accepted")

    def judges(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether Sessions that failed by their agents' fault are scored all the same, as Trials are."""
        return self._environment is not None and all(
            outcome.session.identity.mode == "eval"
            and outcome.failure is not None
            and not outcome.failure.category.infrastructure
            for outcome in outcomes
        )

    async def _reward(self, outcome: Outcome) -> None:
        started = time.monotonic()
        outcome.metadata, outcome.reward_detail = outcome.said
        if self._environment is None:
            await self._earned(outcome)
        else:
            verdict = await self._judged(outcome, self._environment)
            outcome.verdict = settle(verdict, outcome)
            outcome.reward = outcome.verdict.reward
        outcome.durations["reward"] = time.monotonic() - started

    async def _earned(self, outcome: Outcome) -> None:
        """What the agent wrote, or else the reward function gives."""
        blamed = FailureCategory.BAD_OUTPUT
        try:
            if outcome.reward_detail is None:
                if self._function is None:
                    raise CreditError(NO_REWARD)
                blamed = FailureCategory.VERIFIER_ERROR
                outcome.reward_detail = await self._function(reward_input(outcome))
            outcome.reward = primary(outcome.reward_detail, self._config.key(outcome.session.identity.mode))
        except CreditError as error:
            outcome.fail(Failure(blamed, f"Session {outcome.session.session_id}: {error}"))

    async def _judged(self, outcome: Outcome, environment: Environment) -> Verdict:
        """What the evaluator says; without one, what the agent earned. A fault becomes the Session's failure."""
        name, failed = outcome.session.session_id, outcome.failure is not None
        if environment.evaluator is None:
            if not failed:
                await self._earned(outcome)
            return own_verdict(outcome)
        try:
            verdict = await environment.evaluate(outcome)
        except (EvaluatorError, AgentError) as error:
            category = error.category if isinstance(error, AgentError) else FailureCategory.VERIFIER_ERROR
            log.info("evaluator_failed", session=name, category=str(category), message=str(error).partition("\n")[0])
            outcome.fail(Failure(category, f"Session {name}: {error}", error.log_tail))
            return Verdict(None, "not_scored")
        outcome.reward_detail = {**verdict.metrics, **verdict.stages, "reward": verdict.reward}
        if verdict.reward is None and outcome.session.identity.mode == "train":
            what = f"the evaluator gave the reward {verdict.raw_reward}, outside [0, 1]"
            outcome.fail(Failure(FailureCategory.VERIFIER_ERROR, f"Session {name}: {what}"))
        return verdict

    def _filter(self, rewards: list[float]) -> bool:
        assert self._keeps is not None  # noqa: S101  (for the type checker: the caller looked)
        try:
            return bool(self._keeps(rewards))
        except Exception as error:  # the user's function may raise anything
            raise ConfigError(f"{FILTER_FLAG} raised {type(error).__name__}: {error}") from error


def reward_input(outcome: Outcome) -> RewardInput:
    """What a reward function sees of a Session."""
    identity = outcome.session.identity
    conversation = outcome.representative.state.conversation()
    return RewardInput(
        session_id=identity.session_id,
        mode=identity.mode,
        task_messages=identity.task.messages,
        task_metadata=identity.task.metadata,
        label=identity.task.label,
        messages=tuple(chat_message(message) for message in conversation),
        metadata=outcome.metadata,
    )
