"""Training of groups: the committed steps whose batches had them, as `control` records it.

Rows are only added, each with its offset, as in the course. So a reader at any moment needs no copy
and no lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r

FILTERED, CHOSEN = "filtered", "chosen"
"""Rules that kept a batch's sessions out of the loss: a filter, or a choice among the sessions."""
_CHOOSING = ("selection", "pairs")
"""Method kinds that train only some sessions of a group."""
_Sample = tuple[str, int, int]
"""Group, sample and attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedGroup:
    """A group in a committed step's batch."""

    offset: int
    policy: str
    step: int
    trained: tuple[str, ...]
    """Its sessions with a token in the loss."""
    left: tuple[str, ...]
    """Its sessions without one, and those that were replaced."""
    rule: str
    """Rule that kept those out; empty if the commit names none."""


class GroupTraining:
    """Rows from one log, in log order. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._batches: dict[str, tuple[TrainedGroup, ...]] = {}
        self._failed: dict[_Sample, int] = {}
        self._starts: list[tuple[int, str, int]] = []
        """For each trainer start, its offset, policy and first step."""

    def note(self, item: Received) -> None:
        """Take the next record of `control`."""
        match item.record:
            case r.StepCommitted() as commit:
                for group in commit.groups:
                    before = self._batches.get(group.group_id, ())
                    batch = _trained(item.offset, commit, group)
                    self._batches[group.group_id] = (*before, batch)
            case r.SampleFailed() as failed:
                sample = failed.group_id, failed.sample, failed.attempt
                self._failed.setdefault(sample, item.offset)
            case r.LineageStarted() as start:
                self._starts.append((item.offset, start.policy, start.step))

    def batches(self, group_id: str, end: int) -> Sequence[TrainedGroup]:
        """Return a group as it was in each batch before an offset, in log order."""
        return [batch for batch in self._batches.get(group_id, ()) if batch.offset < end]

    def survives(self, batch: TrainedGroup, end: int) -> bool:
        """Return whether a batch's step counts: no trainer start before an offset has undone it."""
        starts = (
            (offset, first)
            for offset, policy, first in self._starts
            if offset < end and batch.policy in ("", policy)
        )
        return not is_undone(batch.offset, batch.step, starts)

    def has_failed(self, group_id: str, sample: int, attempt: int, end: int) -> bool:
        """Return whether a group's session was recorded as failed before an offset."""
        return self._failed.get((group_id, sample, attempt), end) < end


def is_undone(offset: int, step: int, starts: Iterable[tuple[int, int]]) -> bool:
    """Return whether a trainer began again later, at this step or an earlier one.

    `offset`: where the step's record stands. `starts`: offset and first step of each trainer start
    under the same policy.
    """
    return any(offset < began and first <= step for began, first in starts)


def _trained(offset: int, commit: r.StepCommitted, group: r.StepGroup) -> TrainedGroup:
    tokens: Mapping[str, int] = commit.trained_tokens
    chosen = group.replaced or any(method.kind in _CHOOSING for method in commit.methods)
    unfiltered = CHOSEN if chosen else ""
    replaced = (session.session_id for session in group.replaced)
    return TrainedGroup(
        offset=offset,
        policy=commit.policy,
        step=commit.step,
        trained=tuple(name for name in group.sessions if tokens.get(name)),
        left=(*(name for name in group.sessions if not tokens.get(name)), *replaced),
        rule=FILTERED if group.filtered else unfiltered,
    )
