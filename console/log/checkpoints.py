"""Folds of partitions. A copy is kept every so many records, so any moment is near one. Pure.

A fold takes its partition's records in offset order. The state at a moment is the nearest copy
before it, with the records after that copy folded in.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, Protocol, Self, TypeVar

from seamlessflow.infra.kafka.client import Received

_KEPT_STATES = 4


class Fold(Protocol):
    """A state that records are folded into."""

    def apply(self, item: Received) -> None:
        """Fold the next record in."""
        ...

    def copy(self) -> Self:
        """Return a copy that no later record changes."""
        ...


F = TypeVar("F", bound=Fold)


class Checkpoints(Generic[F]):
    """One partition's fold up to its newest record, and copies of earlier states.

    If there are more than `most` copies, every other one is dropped. Copies then stand twice as far
    apart.
    """

    def __init__(self, first: F, every: int, most: int) -> None:
        self.newest = first
        self.end = 0
        """Offset behind the last record that was folded in."""
        self._every = every
        self._most = most
        self._since = 0
        self._ends = [0]
        """The offset behind the last record in each copy, ascending."""
        self._copies = [first.copy()]
        self._asked: OrderedDict[int, F] = OrderedDict()

    def apply(self, item: Received) -> None:
        """Fold the partition's next record in."""
        self.newest.apply(item)
        self.end = item.offset + 1
        self._since += 1
        if self._since >= self._every:
            self._since = 0
            self._ends.append(self.end)
            self._copies.append(self.newest.copy())
            if len(self._copies) > self._most:
                self._thin()

    def nearest(self, end: int) -> tuple[int, F]:
        """Return a state at or before an offset, and the offset from which to fold on.

        The caller may change the state.
        """
        if end >= self.end:
            return self.end, self.newest.copy()
        number = bisect_right(self._ends, end) - 1
        asked = max((at for at in self._asked if at <= end), default=0)
        if asked > self._ends[number]:
            self._asked.move_to_end(asked)
            return asked, self._asked[asked].copy()
        return self._ends[number], self._copies[number].copy()

    def keep(self, end: int, state: F) -> None:
        """Keep a state that was asked for: the next question is often about the same moment."""
        if end < self.end:
            self._asked[end] = state.copy()
            while len(self._asked) > _KEPT_STATES:
                self._asked.popitem(last=False)

    @property
    def copies(self) -> int:
        """Number of copies that are kept."""
        return len(self._copies)

    @property
    def every(self) -> int:
        """Records from one copy to the next."""
        return self._every

    def _thin(self) -> None:
        self._every *= 2
        del self._ends[1::2], self._copies[1::2]


def folded_on(state: F, items: Iterable[Received]) -> F:
    """Return the state with records folded in."""
    for item in items:
        state.apply(item)
    return state
