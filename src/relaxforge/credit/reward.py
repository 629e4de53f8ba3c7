"""Rewards: their primary value, their helper metrics, and the function that gives one where the agent did not."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from relaxforge.core.errors import CreditError
from relaxforge.core.sessions import Mode, Reward
from relaxforge.credit.config import CreditConfig
from relaxforge.credit.functions import load_function

LARGEST_REWARD = 3.4e38
"""Rewards become float32 in training."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewardInput:
    """What a reward function knows about a Session.

    ``task_messages``, ``task_metadata`` and ``label`` come from the dataset row, ``metadata`` from the agent's output.
    ``messages`` is the exported Context in Chat shape, last answer included.
    """

    session_id: str
    mode: Mode
    task_messages: tuple[dict[str, Any], ...] | None
    task_metadata: dict[str, Any] | None
    label: Any
    messages: tuple[dict[str, Any], ...]
    metadata: dict[str, Any]

    @property
    def answer(self) -> str:
        """Text of the last assistant message; "" when it has none."""
        answers = [message for message in self.messages if message.get("role") == "assistant"]
        content = answers[-1].get("content") if answers else None
        return content if isinstance(content, str) else ""


def primary(reward: Reward, key: str | None) -> float | None:
    """The outcome that counts: the number itself, or the object's value under ``key``; ``None`` without a reward.

    Errors: ``CreditError`` saying what to configure or what was found.
    """
    if not isinstance(reward, dict):
        return None if reward is None else _bounded(reward, "the reward")
    if key is None:
        raise CreditError(f"the reward is an object with {_keys(reward)}; say with --reward-key which value counts")
    if key not in reward:
        raise CreditError(f"the reward object has no {key!r} (--reward-key); it has {_keys(reward)}")
    value = reward[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CreditError(f"the reward's {key!r} is {json.dumps(value)[:40]}; it must be a finite number")
    return _bounded(value, f"the reward's {key!r}")


def helper_metrics(reward: Reward, key: str | None) -> dict[str, float]:
    """The numeric values of a reward object beside the primary one; logged as ``rollout/<field>/...``."""
    if not isinstance(reward, dict):
        return {}
    return {
        name: float(value)
        for name, value in reward.items()
        if name != key and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _keys(reward: dict[str, Any]) -> str:
    return ", ".join(map(repr, reward)) or "no values"


def _bounded(value: float, what: str) -> float:
    # Also false for NaN, and exact for integers beyond a double.
    if not -LARGEST_REWARD <= value <= LARGEST_REWARD:
        raise CreditError(f"{what} must be a finite number of at most {LARGEST_REWARD:g}, got {str(value)[:40]}")
    return float(value)


class RewardFunction:
    """A user's reward function, called for one Session at a time per permit.

    Sync functions run in threads of their own, so a slow one holds nobody up; async ones run on the event loop. A sync
    call that runs out of time is abandoned, not stopped: Python cannot stop a thread.
    """

    def __init__(self, function: Callable[[RewardInput], Any], config: CreditConfig, name: str = "reward") -> None:
        self._function = function
        self._name = name
        self._timeout_s = config.reward_timeout
        self._permits = asyncio.Semaphore(config.reward_max_concurrency)

    @classmethod
    def load(cls, config: CreditConfig) -> RewardFunction | None:
        """The function of ``--custom-rm-path``, ``None`` without one. Errors: ``ConfigError``."""
        path = config.custom_rm_path
        return None if path is None else cls(load_function(path, "--custom-rm-path"), config, path)

    async def __call__(self, session: RewardInput) -> float | dict[str, Any]:
        """The Session's reward. Errors: ``CreditError`` when the function raises, hangs or returns nonsense."""
        async with self._permits:
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    value = await self._call(session)
            except (Exception, SystemExit) as error:  # the user's function may raise anything; it becomes a record
                if limit.expired():
                    raise self._error(session, f"took longer than {self._timeout_s:g} s (--reward-timeout)") from error
                raise self._error(session, f"raised {type(error).__name__}: {error}") from error
        try:
            return _sound(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error(session, f"returned {str(value)[:80]!r}: {error}") from error

    async def _call(self, session: RewardInput) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(session)
        value = await _in_thread(self._function, session)
        # A callable object or a partial shows only by its result that it is async.
        return await value if inspect.isawaitable(value) else value

    def _error(self, session: RewardInput, what: str) -> CreditError:
        return CreditError(f"reward function {self._name} {what}, for Session {session.session_id}")


def _in_thread(function: Callable[[RewardInput], T], session: RewardInput) -> Awaitable[T]:
    """Run in a daemon thread: unlike a pool's, one that hangs does not keep the program from ending."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # From here on nobody can cancel it under the thread's feet.

    def run() -> None:
        try:
            outcome.set_result(function(session))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
            # A future can carry neither StopIteration nor what would end the program.
            fits = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome.set_exception(error if fits else RuntimeError(repr(error)))

    threading.Thread(target=run, name=f"reward-{session.session_id}", daemon=True).start()
    return asyncio.wrap_future(outcome)


def _sound(value: Any) -> float | dict[str, Any]:
    """A returned value as a reward: a finite float, or a JSON object. Errors: ``TypeError``, ``ValueError``."""
    if isinstance(value, dict):
        return {str(name): _number(item) if hasattr(item, "__float__") else _json(item) for name, item in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError("a reward is a number, or an object with numbers")
    return _number(value)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a reward must be finite")
    return number


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))
