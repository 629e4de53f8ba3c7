"""Group-relative credit: a Session against the other Sessions of its Group.

GRPO's outcome supervision (DeepSeekMath, arXiv 2402.03300, section 4.1.2): ``(r_i - mean(r)) / std(r)``. Rewards are
keyed by Session, so a Session that exports many Contexts counts once in the baseline, however many rows it fills.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relaxforge.credit.config import CreditConfig

STD_FLOOR = 1e-6
"""Added to the standard deviation, so that a Group of almost equal rewards does not explode."""


def group_advantages(rewards: Mapping[str, float], config: CreditConfig) -> dict[str, float]:
    """The base credit of each Session of one Group, by Session id.

    The standard deviation is that of a sample (n - 1 in the denominator); a Group of one has none and is only centred.
    Equal rewards give exactly 0.
    """
    if config.disable_rewards_normalization or not rewards:
        return dict(rewards)
    if max(rewards.values()) == min(rewards.values()):
        return dict.fromkeys(rewards, 0.0)
    mean = math.fsum(rewards.values()) / len(rewards)
    centred = {session: reward - mean for session, reward in rewards.items()}
    if config.disable_grpo_std_normalization:
        return centred
    # At least two Sessions here: a single one equals itself.
    std = math.sqrt(math.fsum(value * value for value in centred.values()) / (len(rewards) - 1))
    return {session: value / (std + STD_FLOOR) for session, value in centred.items()}
