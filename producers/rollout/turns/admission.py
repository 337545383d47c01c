"""The rule that decides which records in its slot a worker acts on. Pure; `serving.py` asks.

The slot also holds other records: for workers that had it before, for this worker's earlier
incarnations, and repeats. It also holds records that a partition's former owner still sent.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from seamlessflow.schemas.records import CancelGeneration, GenerateTurn

REMEMBERED_TURNS = 16_384
"""Count of turns whose newest dispatch is remembered, to recognise a repeat."""

Ignored = Literal["other_worker", "other_incarnation", "old_epoch", "repeated"]


@dataclass(slots=True)
class Admission:
    """The records that one incarnation has seen in its slot."""

    worker: str
    incarnation: str
    ignored: Counter[Ignored] = field(default_factory=Counter)
    """Count of ignored records that are not in the metrics yet, by reason."""
    _epochs: dict[int, int] = field(default_factory=dict)
    _dispatches: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def renewed(self, incarnation: str) -> "Admission":
        """Return the admission for the worker's next incarnation."""
        return Admission(self.worker, incarnation, self.ignored)

    def admits(self, request: GenerateTurn) -> bool:
        """Return True for a new record to this incarnation, from the partition's newest owner."""
        reason = self._misdirected(request)
        if reason is None:
            reason = self._outdated(request)
        if reason is not None:
            self.ignored[reason] += 1
            return False
        self._epochs[request.partition] = request.epoch
        self._dispatches[request.turn_id] = request.dispatch
        if len(self._dispatches) > REMEMBERED_TURNS:  # forget the turn seen first
            self._dispatches.popitem(last=False)
        return True

    def admits_cancel(self, cancel: CancelGeneration, partition: int) -> bool:
        """Return True for a cancel to obey; the turn's session is in `partition`."""
        reason = self._misdirected(cancel)
        if reason is None and cancel.epoch < self._epochs.get(partition, -1):
            reason = "old_epoch"
        if reason is not None:
            self.ignored[reason] += 1
        return reason is None

    def _misdirected(self, record: GenerateTurn | CancelGeneration) -> Ignored | None:
        if record.worker != self.worker:
            return "other_worker"
        return "other_incarnation" if record.incarnation != self.incarnation else None

    def _outdated(self, request: GenerateTurn) -> Ignored | None:
        if request.epoch < self._epochs.get(request.partition, -1):
            return "old_epoch"
        seen = self._dispatches.get(request.turn_id)
        return "repeated" if seen is not None and request.dispatch <= seen else None
