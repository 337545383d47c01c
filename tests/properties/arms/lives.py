"""Lives of schedulers over one log: snapshots, records of arms, kills at any moment, takeovers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.arms import Arms, PassCounting
from seamlessflow.scheduler.state.state import State, from_json, to_json
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import arm_key

Keyed = tuple[str, r.ArmSnapshot | None]
"""A record of the topic `arms` with its key; None: a tombstone."""


@dataclass(eq=False)
class KeptTopics:
    """Records that a scheduler leaves behind."""

    arms: list[Keyed] = field(default_factory=list)
    snapshot: tuple[int, bytes] | None = None
    """Offset and state of the newest snapshot."""

    def compact(self) -> None:
        """Keep the newest record of each key."""
        newest = dict(self.arms)
        self.arms = [(key, record) for key, record in newest.items() if record is not None]


class SchedulerLife:
    """A scheduler from its start to its kill."""

    def __init__(
        self,
        kept: KeptTopics,
        log: Sequence[Record],
        start: State,
        epoch: int,
        arms: Arms,
    ) -> None:
        """Read both topics and then the log to its end."""
        self._kept = kept
        self._epoch = epoch
        self.arms = arms
        self.state = start
        self.offset = -1
        for _, record in kept.arms:
            if record is not None:
                arms.restore(record, len(log))
        if kept.snapshot is not None:
            self.offset, stored = kept.snapshot
            restored = from_json(stored)
            assert restored is not None
            self.state = restored
        self.read(log)

    def read(self, log: Sequence[Record]) -> None:
        """Fold in what it has not read of the log."""
        for record in log[self.offset + 1 :]:
            self.offset += 1
            self.arms.apply(self.state, record, self.offset)
            self.state = control_state.apply(self.state, record)

    def write(self) -> None:
        """Write the arms that changed, remove their older records, then write a snapshot."""
        written, removed = self._records()
        self._kept.arms += [*written, *removed]
        self.arms.note_written(self._epoch)
        self._kept.snapshot = (self.offset, to_json(self.state))

    def last_words(self, source: random.Random) -> list[Keyed]:
        """Return what its producer still sends once it was killed: a begin of the records."""
        written, removed = self._records()
        words = [*written, *removed]
        return words[: source.randint(0, len(words))]

    def _records(self) -> tuple[list[Keyed], list[Keyed]]:
        written: list[Keyed] = [
            (arm_key(self._epoch, snapshot.arm), snapshot)
            for snapshot in self.arms.snapshots(self._epoch, self.offset)
        ]
        removed: list[Keyed] = [
            (arm_key(older, name), None) for older, name in self.arms.replaced(self._epoch)
        ]
        return written, removed


def taken_over(
    log: Sequence[Record], start: State, counting: PassCounting, kind: type[Arms], seed: int
) -> Arms:
    """Return the statistics of the last of several schedulers, each killed but that one."""
    source = random.Random(seed)
    kept = KeptTopics()
    late: list[Keyed] = []
    moments = sorted(source.randint(0, len(log)) for _ in range(source.randint(1, 12)))
    epoch = 1
    life = SchedulerLife(kept, [], start, epoch, kind(counting))
    for moment in moments:
        life.read(log[:moment])
        if source.random() < 0.5:
            life.write()
        if source.random() < 0.5:
            # What a killed one has sent may come before or behind its successor's start.
            words = life.last_words(source)
            cut = source.randint(0, len(words))
            kept.arms += words[:cut]
            if source.random() < 0.7:
                kept.compact()
            epoch += 1
            life = SchedulerLife(kept, log[:moment], start, epoch, kind(counting))
            kept.arms += late
            late = words[cut:]
    life.read(log)
    return life.arms
