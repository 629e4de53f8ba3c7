"""The reward: reasoning-gym's own verifier for the task that the answer belongs to."""

from reasoning_gym import get_score_answer_fn


def reward(session) -> float:
    """A score in [0, 1]; ``session.label`` is the reasoning-gym entry, ``session.answer`` the model's last text."""
    score = get_score_answer_fn(session.label["metadata"]["source_dataset"])
    return score(session.answer.strip(), session.label)
