"""How much is rolled out at once, how it is sampled, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

from relaxforge.core.errors import ConfigError

MOST_SESSIONS = 1_000_000
"""Sessions in one step; each has a record in memory until the step is trained."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    rollout_batch_size: int = 8
    """Groups per rollout step."""

    n_samples_per_prompt: int = 8
    """Sessions per Group."""

    over_sampling_batch_size: int | None = None
    """Groups started per step, surplus included; None: the rollout batch size."""

    agentic_concurrency: int | None = None
    """Resident Groups in Prepare and Runtime together; None: the over-sampling batch size."""

    agentic_eval_concurrency: int | None = None
    """Resident Groups during an evaluation; None: as many as keep the number of resident Sessions of training."""

    max_consecutive_failed_groups: int = 8
    """Groups that may fail in a row before the run ends with exit code 3."""

    max_consecutive_filtered_groups: int = 128
    """Groups that --dynamic-sampling-filter-path may discard, with none kept between them, before the run ends with
    exit code 3."""

    rollout_max_response_len: int = 1024
    """Most tokens generated in one Turn unless the request asks for fewer."""

    rollout_max_context_len: int | None = None
    """Most tokens in one Context, answers included; None: the model's own limit."""

    rollout_temperature: float = 1.0
    """Sampling temperature; 0 is greedy."""

    rollout_top_p: float = 1.0
    """Nucleus sampling; 1 is off."""

    rollout_top_k: int = -1
    """Most likely tokens kept when sampling; 0 or less is off."""

    rollout_seed: int = 42
    """Seed of dataset order and of sampling."""

    n_samples_per_eval_prompt: int = 1
    """Sessions per evaluation Task."""

    eval_temperature: float | None = None
    """Sampling temperature in evaluations; None: as in training."""

    eval_top_p: float | None = None
    """Nucleus sampling in evaluations; None: as in training."""

    eval_top_k: int | None = None
    """Most likely tokens kept in evaluations; None: as in training."""

    eval_max_response_len: int | None = None
    """Most tokens generated in one Turn of an evaluation; None: as in training."""

    eval_max_context_len: int | None = None
    """Most tokens in one Context of an evaluation; None: as in training."""

    dynamic_sampling_filter_path: str | None = None
    """Dotted path of a function from the rewards of a Group to whether it is kept; None keeps all.
    `relaxforge.credit.filters.nonzero_std` drops Groups whose Sessions all earned the same."""

    transfer_queue_groups: int | None = None
    """Groups that may wait for the trainer before Reward holds back; None: the rollout batch size."""

    debug_check_integrity: bool = False
    """Check the invariants of scheduler and forests after every step (slow)."""

    def __post_init__(self) -> None:
        _positive(self, "rollout_batch_size", "n_samples_per_prompt", "rollout_max_response_len")
        _positive(self, "max_consecutive_failed_groups", "max_consecutive_filtered_groups", "n_samples_per_eval_prompt")
        _positive(self, "agentic_concurrency", "agentic_eval_concurrency", "rollout_max_context_len")
        _positive(self, "eval_max_response_len", "eval_max_context_len", "transfer_queue_groups")
        if self.over_sampling_batch_size is not None and self.over_sampling_batch_size < self.rollout_batch_size:
            raise ConfigError(
                f"--over-sampling-batch-size must be at least --rollout-batch-size ({self.rollout_batch_size}), "
                f"got {self.over_sampling_batch_size}"
            )
        if (sessions := self.started_groups * self.n_samples_per_prompt) > MOST_SESSIONS:
            raise ConfigError(
                f"--rollout-batch-size {self.started_groups} (surplus included) times --n-samples-per-prompt "
                f"{self.n_samples_per_prompt} are {sessions} Sessions in one step; at most {MOST_SESSIONS} are possible"
            )
        for name in ("rollout_temperature", "eval_temperature"):
            if (value := getattr(self, name)) is not None and not 0 <= value <= 10:
                raise ConfigError(f"--{name.replace('_', '-')} must lie in [0, 10], got {value}")
        for name in ("rollout_top_p", "eval_top_p"):
            if (value := getattr(self, name)) is not None and not 0 < value <= 1:
                raise ConfigError(f"--{name.replace('_', '-')} must lie in (0, 1], got {value}")

    @property
    def started_groups(self) -> int:
        return self.over_sampling_batch_size or self.rollout_batch_size

    @property
    def resident_groups(self) -> int:
        return self.agentic_concurrency or self.started_groups

    @property
    def resident_sessions(self) -> int:
        """T of the capacity table: resident training Groups times Sessions per Group."""
        return self.resident_groups * self.n_samples_per_prompt

    @property
    def resident_eval_groups(self) -> int:
        """C_d of the capacity table: explicit, or ceil(T / G_d)."""
        return self.agentic_eval_concurrency or -(-self.resident_sessions // self.n_samples_per_eval_prompt)


def _positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
