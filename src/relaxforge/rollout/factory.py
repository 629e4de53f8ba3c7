"""Makes the Sessions of a Group: names, seeds, budgets, and their place at the model's door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from relaxforge.agents.config import AgentConfig
from relaxforge.core.errors import ConfigError
from relaxforge.core.ids import Credential, group_id, session_id
from relaxforge.core.ports import Engine, HostedModel
from relaxforge.core.sessions import Mode, Task
from relaxforge.core.turns import Sampling
from relaxforge.forest.config import HistoryConfig
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.group import RunningGroup
from relaxforge.rollout.hosted import HostedSession
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.session import Session, SessionIdentity, SessionLimits
from relaxforge.rollout.token_session import TokenSession


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """``incarnation`` counts the restarts of the run. A ``hosted`` model is the engine, too, and has no renderer."""

    rollout: RolloutConfig
    agents: AgentConfig
    history: HistoryConfig
    engine: Engine
    renderer: Renderer | None
    registry: SessionRegistry
    incarnation: int = 0
    check_render_every: int = 0
    hosted: HostedModel | None = None

    def group(self, number: int, mode: Mode, task: Task, size: int) -> RunningGroup:
        """A Group of ``size`` Sessions of ``task``, registered at the door but not started."""
        name = group_id(mode, number)
        sessions = tuple(self._session(name, index, mode, task) for index in range(size))
        return RunningGroup(number, name, task, sessions)

    def _session(self, group: str, index: int, mode: Mode, task: Task) -> Session:
        credential = Credential.issue(session_id(group, index, self.incarnation))
        seed = _seed(self.rollout.rollout_seed, group, index) if task.seed is None else task.seed + index
        session = self._open(SessionIdentity(credential, group, mode, task, seed))
        self.registry.add(session)
        return session

    def _open(self, identity: SessionIdentity) -> Session:
        mode, history = identity.mode, self.history
        given = identity, self._limits(mode), self._sampling(mode)
        if self.hosted is not None and mode == "train":
            raise ConfigError(
                "a hosted model returns text and no tokens, so there is nothing to train on; use it in evaluations, "
                "and train with a model of your own"
            )
        if self.hosted is not None:
            return HostedSession(
                *given, model=self.hosted, strict_history=history.strict_history,
                retry_policy=history.agentic_retry_policy,
            )  # fmt: skip
        assert self.renderer is not None  # noqa: S101  (only a hosted model has none)
        return TokenSession(
            *given, engine=self.engine, renderer=self.renderer, strict_history=history.strict_history,
            retry_policy=history.agentic_retry_policy, check_every=self.check_render_every,
        )  # fmt: skip

    def _limits(self, mode: Mode) -> SessionLimits:
        config = self.rollout
        context, response = config.rollout_max_context_len, config.rollout_max_response_len
        if mode == "eval":
            context, response = config.eval_max_context_len or context, config.eval_max_response_len or response
        own = self.engine.capabilities.max_context
        limits = [limit for limit in (context, own) if limit is not None]
        return SessionLimits(
            context=min(limits) if limits else None,
            response=response,
            active_s=self.agents.agent_timeout,
            startup_s=self.agents.agent_startup_timeout,
        )

    def _sampling(self, mode: Mode) -> Sampling:
        config = self.rollout
        sampling = Sampling(
            max_tokens=config.rollout_max_response_len,
            temperature=config.rollout_temperature,
            top_p=config.rollout_top_p,
            top_k=config.rollout_top_k,
        )
        if mode == "train":
            return sampling
        return replace(
            sampling,
            temperature=sampling.temperature if config.eval_temperature is None else config.eval_temperature,
            top_p=sampling.top_p if config.eval_top_p is None else config.eval_top_p,
            top_k=sampling.top_k if config.eval_top_k is None else config.eval_top_k,
        )


def _seed(run_seed: int, group: str, index: int) -> int:
    """A Session's seed: the same in every run with the same ``--rollout-seed``, different for every Session."""
    return int.from_bytes(blake2b(f"{run_seed}/{group}/{index}".encode(), digest_size=4).digest(), "little")
