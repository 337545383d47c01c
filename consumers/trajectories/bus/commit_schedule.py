"""Schedule of the commits: trajectories soon, offsets alone every few rounds."""

import time
from collections.abc import Mapping
from functools import partial

from consumers.trajectories.bus.committer import Job
from consumers.trajectories.bus.connections import Connections
from consumers.trajectories.sessions.partition import Partition
from infra.telemetry.metrics import Metrics

_OFFSETS_ONLY_EVERY = 5
"""Every fifth commit includes partitions that have new offsets but no trajectory."""
_TRAJECTORIES = "seamlessflow_manager_trajectories_total"


class CommitSchedule:
    """Chooses, on the main thread, what the committer commits on its thread. Never blocks."""

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
        self._trajectories = metrics.counter(_TRAJECTORIES)
        self._in_flight: dict[int, Partition] | None = None
        """Partitions of the job in progress, until `_ended` has run on the main thread."""
        self._next = 0.0
        self._rounds = 0

    @property
    def due_in_s(self) -> float:
        """Seconds until the next commit may begin."""
        return max(0.0, self._next - time.monotonic())

    def commit(self) -> None:
        """Submit the next job if one is due and none is in progress. Called once a round."""
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
                # Runs on the committer's thread; `_ended` then runs on the main thread.
                job,
                lambda committed: self._inbox.post(partial(self._ended, job, committed)),
            )

    def _ended(self, job: Job, committed: bool) -> None:
        partitions, self._in_flight = self._in_flight or {}, None
        if not committed:
            return  # all of it is in the next job again
        for number, emissions in job.emissions.items():
            self._trajectories.inc(len(emissions))
            partitions[number].committed(len(emissions), job.offsets[number])
