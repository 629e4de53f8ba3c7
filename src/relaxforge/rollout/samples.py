"""Outcomes of a Group as training input: Contexts as paths over segments that the Group shares."""

from __future__ import annotations

from collections.abc import Sequence

from relaxforge.core.samples import ContextPath, SampleGroup, Segment
from relaxforge.forest.lineage import segments, terminal_status
from relaxforge.rollout.outcome import Outcome


def sample_group(group_id: str, outcomes: Sequence[Outcome]) -> SampleGroup:
    """One ``ContextPath`` per exported Context of every Session that earned credit."""
    shared = _SharedSegments()
    contexts = [
        ContextPath(
            outcome.session.session_id,
            context.name,
            shared.path(segments(context)),
            outcome.advantage or 0.0,
            outcome.reward or 0.0,
            terminal_status(context) == "truncated",
        )
        for outcome in outcomes
        for context in outcome.contexts
    ]
    return SampleGroup(group_id, tuple(shared.segments), tuple(contexts))


class _SharedSegments:
    """Observations with equal tokens behind the same path are one segment; answers never merge."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._places: dict[int | tuple[int, bytes], int] = {}

    def path(self, lineage: Sequence[Segment]) -> tuple[int, ...]:
        path: list[int] = []
        for segment in lineage:
            path.append(self._place(path[-1] if path else -1, segment))
        return tuple(path)

    def _place(self, parent: int, segment: Segment) -> int:
        # Two Contexts of one Session that pass the same answer hold the same array object, hence one segment.
        key = id(segment.tokens) if segment.sampled else (parent, segment.tokens.tobytes())
        if key not in self._places:
            self.segments.append(segment)
            self._places[key] = len(self.segments) - 1
        return self._places[key]
