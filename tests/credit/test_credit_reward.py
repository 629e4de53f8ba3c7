"""Primary values, helper metrics, and reward functions that work, hang, raise or return nonsense."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from relaxforge.core.errors import ConfigError, CreditError
from relaxforge.credit.config import CreditConfig
from relaxforge.credit.functions import load_function
from relaxforge.credit.reward import RewardFunction, RewardInput, helper_metrics, primary

SESSION = RewardInput(
    session_id="train-g000001-00",
    mode="train",
    task_messages=({"role": "user", "content": "2+2?"},),
    task_metadata=None,
    label=4,
    messages=({"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}),
    metadata={"tries": 1},
)


def call(function: Any, **settings: Any) -> float | dict[str, Any]:
    return asyncio.run(RewardFunction(function, CreditConfig(**settings))(SESSION))


def join_reward_threads() -> None:
    """An abandoned call still ends one day; what it then does must not surprise anybody."""
    for thread in threading.enumerate():
        if thread.name.startswith("reward-"):
            thread.join(20)


def test_the_primary_value_is_the_number_or_the_objects_key() -> None:
    assert primary(0.5, None) == 0.5
    assert primary(0.5, "acc") == 0.5
    assert primary({"acc": 1, "length": 12}, "acc") == 1.0
    assert primary(None, "acc") is None


@pytest.mark.parametrize(
    ("reward", "key", "words"),
    [
        ({"acc": 1.0, "b": 2}, None, "object with 'acc', 'b'; say with --reward-key"),
        ({"acc": 1.0}, "score", "has no 'score' .--reward-key.; it has 'acc'"),
        ({}, "score", "it has no values"),
        ({"acc": "high"}, "acc", "the reward's 'acc' is \"high\"; it must be a finite number"),
        ({"acc": True}, "acc", "is true; it must be a finite number"),
        ({"acc": None}, "acc", "is null; it must be a finite number"),
        ({"acc": 10**400}, "acc", "must be a finite number of at most 3.4e[+]38"),
        (1e39, None, "the reward must be a finite number of at most"),
        (float("nan"), None, "the reward must be a finite number"),
        (float("-inf"), None, "the reward must be a finite number"),
    ],
)
def test_rewards_without_a_usable_primary_value_say_what_to_do(reward: Any, key: str | None, words: str) -> None:
    with pytest.raises(CreditError, match=words):
        primary(reward, key)


def test_helper_metrics_are_the_other_numbers() -> None:
    reward = {"acc": 1.0, "length": 12, "ok": True, "note": "x", "parts": [1]}
    assert helper_metrics(reward, "acc") == {"length": 12.0}
    assert helper_metrics(1.0, "acc") == helper_metrics(None, None) == {}


def test_the_answer_is_the_last_assistant_text() -> None:
    assert SESSION.answer == "4"


def test_sync_and_async_functions_and_callables_give_rewards() -> None:
    def sync(session: RewardInput) -> float:
        assert threading.current_thread() is not threading.main_thread()
        return float(session.answer == str(session.label))

    async def asynchronous(session: RewardInput) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"acc": session.answer == "4", "note": "fine"}

    assert call(sync) == 1.0
    assert call(asynchronous) == {"acc": 1.0, "note": "fine"}
    assert call(functools.partial(asynchronous)) == {"acc": 1.0, "note": "fine"}


@pytest.mark.parametrize(("value", "reward"), [(True, 1.0), (3, 3.0), (Decimal("0.5"), 0.5)])
def test_what_python_takes_for_a_number_is_one(value: Any, reward: float) -> None:
    assert call(lambda _: value) == reward


@pytest.mark.parametrize("value", [None, "high", "0.5", b"1", [1.0], float("nan"), float("inf"), {"acc": float("nan")},
                                   {"acc": object()}, object(), 1j])  # fmt: skip
def test_nonsense_is_an_error_that_names_the_session(value: Any) -> None:
    with pytest.raises(CreditError, match=r"reward function reward returned .* for Session train-g000001-00"):
        call(lambda _: value)


@pytest.mark.parametrize("error", [ValueError("no label"), SystemExit(3), TimeoutError("mine"), StopIteration()])
def test_whatever_a_function_raises_is_an_error_of_the_reward(error: BaseException) -> None:
    def sync(_: RewardInput) -> float:
        raise error

    async def asynchronous(_: RewardInput) -> float:
        raise error

    for function in (sync, asynchronous):
        with pytest.raises(CreditError, match=r"reward function reward raised .*, for Session train-g000001-00"):
            call(function)


def test_a_function_that_hangs_runs_out_of_time() -> None:
    released = threading.Event()

    async def forever(_: RewardInput) -> float:
        await asyncio.Event().wait()
        return 0.0

    try:
        for function in (lambda _: released.wait(), forever):
            with pytest.raises(CreditError, match=r"took longer than 0.05 s \(--reward-timeout\)"):
                call(function, reward_timeout=0.05)
    finally:
        released.set()
        join_reward_threads()


def test_a_hanging_call_does_not_take_the_place_of_the_next_one() -> None:
    released = threading.Event()

    async def go() -> None:
        function = RewardFunction(
            lambda session: 1.0 if session.label == 4 else released.wait(),
            CreditConfig(reward_timeout=0.05, reward_max_concurrency=1),
        )
        hanging = RewardInput("s-1", "train", None, None, 5, (), {})
        with pytest.raises(CreditError, match="took longer"):
            await function(hanging)
        assert await function(SESSION) == 1.0

    try:
        asyncio.run(go())
    finally:
        released.set()
        join_reward_threads()


def test_no_more_calls_run_at_once_than_allowed() -> None:
    running = most = 0

    async def count(_: RewardInput) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 0.0

    async def go() -> None:
        function = RewardFunction(count, CreditConfig(reward_max_concurrency=3))
        await asyncio.gather(*(function(SESSION) for _ in range(20)))

    asyncio.run(go())
    assert most == 3


def test_a_function_is_loaded_from_a_file_or_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "judge_of_sums.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Verdict:\n    value: float\n"
        "def reward(session):\n    return Verdict(float(session.label)).value\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for path in (f"{tmp_path}/judge_of_sums.py:reward", "judge_of_sums.py:reward", "judge_of_sums.reward"):
        function = RewardFunction.load(CreditConfig(custom_rm_path=path))
        assert function is not None
        assert asyncio.run(function(SESSION)) == 4.0
        sys.modules.pop("judge_of_sums")
    assert RewardFunction.load(CreditConfig()) is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("reward", "'reward' must look like package.module.function"),
        ("no_such_package_x.reward", "no_such_package_x cannot be imported: ModuleNotFoundError"),
        ("missing.py:reward", "missing.py cannot be imported: FileNotFoundError"),
        ("broken.py:reward", "broken.py cannot be imported: SyntaxError"),
        ("raising.py:reward", "raising.py cannot be imported: RuntimeError: not today"),
        ("leaving.py:reward", "leaving.py cannot be imported: SystemExit: 5"),
        ("math.sqroot", "math has no 'sqroot'; did you mean 'sqrt'"),
        ("math.pi", "math.pi is a float, not a function"),
    ],
)
def test_paths_that_name_no_function_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    (tmp_path / "leaving.py").write_text("raise SystemExit(5)\n")
    (tmp_path / "broken.py").write_text("def reward(:\n")
    (tmp_path / "raising.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    with pytest.raises(ConfigError, match=f"--some-flag.*{words}"):
        load_function(path, "--some-flag")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reward_max_concurrency": 0}, "--reward-max-concurrency must be at least 1"),
        ({"reward_timeout": 0.0}, "--reward-timeout must be > 0 seconds"),
        ({"custom_rm_path": ""}, "--custom-rm-path is empty"),
        ({"eval_reward_key": ""}, "--eval-reward-key is empty"),
    ],
)
def test_settings_out_of_range_name_their_flag(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CreditConfig(**settings)


def test_evaluations_may_have_a_key_of_their_own() -> None:
    config = CreditConfig(reward_key="acc", eval_reward_key="exact")
    assert (config.key("train"), config.key("eval")) == ("acc", "exact")
    assert CreditConfig(reward_key="acc").key("eval") == "acc"
