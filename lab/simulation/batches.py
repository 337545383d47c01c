"""Whole batches, one at a time: the published "one step off", in a simulation.

By `run.lag` alone a step takes the groups that are ready first, and those that take long go into a
later one. Here the groups of a batch begin together once the batch before it trains, and the next
step trains exactly these. Called by `lab/simulation/simulator.py`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Task


@dataclass(eq=False)
class WholeBatches:
    """Tasks that wait for their batch; `size`: groups of a batch. Pure."""

    size: int
    _begun: set[str] = field(default_factory=set)
    """Groups that have begun and that no step has taken."""
    _batch: tuple[str, ...] = ()
    """Groups of the batch that is ready."""
    _held: deque[Task] = field(default_factory=deque)

    def hold(self, task: Task) -> None:
        """Take a task that was issued."""
        self._held.append(task)

    def apply(self, record: Record) -> bool:
        """Fold in a record of `control`; return True if further groups may begin."""
        match record:
            case r.BatchReady():
                self._batch = record.groups
            case r.StepStarted():
                self._begun.difference_update(self._batch)
                return True
            case r.GroupDropped():
                self._begun.discard(record.group_id)
                return True
        return False

    def released(self) -> Iterator[Task]:
        """Yield the tasks that may begin now, in their order."""
        held, self._held = self._held, deque()
        for task in held:
            if task.group_id in self._begun or len(self._begun) < self.size:
                self._begun.add(task.group_id)
                yield task
            else:
                self._held.append(task)
