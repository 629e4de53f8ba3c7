"""Makes the Sessions of a Group: names, seeds, budgets, and their place at the model's door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from relaxforge.agents.config import AgentConfig
from relaxforge.core.ids import Credential, group_id, session_id
from relaxforge.core.ports import Engine
from relaxforge.core.sessions import Mode, Task
from relaxforge.core.turns import Sampling
from relaxforge.forest.config import HistoryConfig
from relaxforge.render.renderer import Renderer
from relaxforge.rollout.config import RolloutConfig
from relaxforge.rollout.group import RunningGroup
from relaxforge.rollout.registry import SessionRegistry
from relaxforge.rollout.session import Session, SessionIdentity, SessionLimits


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """``incarnation`` counts the restarts of the run; ``context_limit`` is the model's own, in tokens."""

    rollout: RolloutConfig
    agents: AgentConfig
    history: HistoryConfig
    engine: Engine
    renderer: Renderer
    registry: SessionRegistry
    incarnation: int = 0
    check_render_every: int = 0

    def group(self, number: int, mode: Mode, task: Task, size: int) -> RunningGroup:
        """A Group of ``size`` Sessions of ``task``, registered at the door but not started."""
        name = group_id(mode, number)
        sessions = tuple(self._session(name, index, mode, task) for index in range(size))
        return RunningGroup(number, name, task, sessions)

    def _session(self, group: str, index: int, mode: Mode, task: Task) -> Session:
        credential = Credential.issue(session_id(group, index, self.incarnation))
        seed = _seed(self.rollout.rollout_seed, group, index)
        session = Session(
            SessionIdentity(credential, group, mode, task, seed),
            self._limits(mode),
            self._sampling(mode),
            engine=self.engine,
            renderer=self.renderer,
            strict_history=self.history.strict_history,
            retry_policy=self.history.agentic_retry_policy,
            check_every=self.check_render_every,
        )
        self.registry.add(session)
        return session

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
