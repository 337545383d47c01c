"""What is committed, and when: trajectories soon, offsets without any now and then."""

import time
from collections.abc import Mapping
from functools import partial

from consumers.trajectories.bus.committer import Job
from consumers.trajectories.bus.connections import Connections
from consumers.trajectories.sessions.partition import Partition
from infra.telemetry.metrics import Metrics

_OFFSETS_ONLY_EVERY = 5
_TRAJECTORIES = "seamlessflow_manager_trajectories_total"


class CommitSchedule:
    """Chooses on the main thread what the committer does on its own."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        connections: Connections,
        interval_s: float,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._inbox = connections.inbox
        self._producer = connections.producer
        self._committer = connections.committer
        self._interval_s = interval_s
        self._committed = metrics.counter(_TRAJECTORIES)
        self._in_flight: dict[int, Partition] | None = None
        """Partitions of the job that is being committed, until its end was handled here."""
        self._next = 0.0
        self._rounds = 0

    @property
    def due_in_s(self) -> float:
        """When `commit` has something to do."""
        return max(0.0, self._next - time.monotonic())

    def commit(self) -> None:
        """Begins a transaction if one is due and none is under way."""
        if self._in_flight is not None or self.due_in_s:
            return
        self._next = time.monotonic() + self._interval_s
        self._rounds += 1
        offsets_too = self._rounds % _OFFSETS_ONLY_EVERY == 0
        chosen = [
            one
            for one in self._partitions.values()
            if one.owned and (one.emitted or (offsets_too and one.uncommitted))
        ]
        if chosen:
            self._in_flight = {one.number: one for one in chosen}
            job = Job(
                {one.number: tuple(one.emitted) for one in chosen},
                {one.number: one.committable() for one in chosen},
                self._producer.sent,
            )
            self._committer.submit(
                job, lambda took: self._inbox.put(partial(self._ended, job, took))
            )

    def _ended(self, job: Job, took: bool) -> None:
        partitions, self._in_flight = self._in_flight or {}, None
        if not took:
            return
        for number, trajectories in job.trajectories.items():
            self._committed.inc(len(trajectories))
            partitions[number].committed(len(trajectories), job.offsets[number])
