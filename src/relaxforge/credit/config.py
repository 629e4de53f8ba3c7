"""Where rewards come from and how Sessions of a Group are compared."""

from __future__ import annotations

from dataclasses import dataclass

from relaxforge.core.errors import ConfigError
from relaxforge.core.sessions import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditConfig:
    """Credit: what a Session earned."""

    custom_rm_path: str | None = None
    """Reward function for Sessions whose agent wrote no reward, as `package.module.function` or
    `path/to/file.py:function`; sync or async, from a RewardInput to a number or an object. None: agents write it."""

    reward_key: str | None = None
    """Primary value of reward objects. None: rewards are plain numbers."""

    eval_reward_key: str | None = None
    """Primary value of reward objects in evaluations. None: --reward-key."""

    reward_max_concurrency: int = 64
    """Calls of the reward function at the same time."""

    reward_timeout: float | None = 600.0
    """Seconds one call of the reward function may take, waiting for its turn not counted. None: no limit."""

    disable_rewards_normalization: bool = False
    """Use rewards as they are instead of comparing the Sessions of a Group."""

    disable_grpo_std_normalization: bool = False
    """Subtract the mean of the Group, but do not divide by its standard deviation."""

    log_passrate: bool = False
    """Log passrate/pass@k and pass^k of training Groups; a reward of exactly 1 is a success."""

    def __post_init__(self) -> None:
        if self.reward_max_concurrency < 1:
            raise ConfigError(f"--reward-max-concurrency must be at least 1, got {self.reward_max_concurrency}")
        if self.reward_timeout is not None and not self.reward_timeout > 0:
            raise ConfigError(f"--reward-timeout must be > 0 seconds, got {self.reward_timeout}")
        for name in ("custom_rm_path", "reward_key", "eval_reward_key"):
            if getattr(self, name) == "":
                raise ConfigError(f"--{name.replace('_', '-')} is empty; leave it out or give it a value")

    def key(self, mode: Mode) -> str | None:
        """The primary key of reward objects in ``mode``."""
        return self.eval_reward_key or self.reward_key if mode == "eval" else self.reward_key
