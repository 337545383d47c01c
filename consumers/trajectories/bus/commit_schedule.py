"""Schedule of commits: trajectories soon, offsets without trajectories only every few rounds."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from seamlessflow.consumers.trajectories.bus.committer import Job
from seamlessflow.consumers.trajectories.bus.connections import Connections
from seamlessflow.consumers.trajectories.sessions.partition import Emission, Partition
from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.telemetry.metrics import Metrics

_OFFSETS_ONLY_EVERY = 5
"""Every fifth commit includes partitions that have new offsets but no trajectory."""
_TRAJECTORIES = "seamlessflow_manager_trajectories_total"


class CommitSchedule:
    """Chooses on the main thread what the committer commits on its own thread. Never blocks."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        connections: Connections,
        settings: ManagerSection,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._inbox = connections.inbox
        self._producer = connections.producer
        self._committer = connections.committer
        self._interval_s = settings.commit_interval_s
        self._most_records = settings.transaction_records
        self._most_bytes = int(settings.transaction_mb * 1_000_000)
        self._trajectories = metrics.counter(_TRAJECTORIES)
        self._in_flight: dict[int, Partition] | None = None
        """Partitions in the current job, until `_ended` has run on the main thread."""
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
        chosen = {
            partition.number: partition
            for partition in sorted(self._partitions.values(), key=_taken_over_last)
            if partition.commits
            and (partition.emitted or (partition.owned and offsets_too and partition.uncommitted))
        }
        emissions = portion(
            {number: partition.emitted for number, partition in chosen.items()},
            self._most_records,
            self._most_bytes,
        )
        if emissions:
            self._in_flight = {number: chosen[number] for number in emissions}
            offsets = {
                number: partition.committable(len(emissions[number]))
                for number, partition in self._in_flight.items()
            }
            job = Job(emissions, offsets, self._producer.sent)
            self._committer.submit(
                # Runs on the committer's thread; `_ended` then runs on the main thread.
                job,
                lambda committed: self._inbox.post(partial(self._ended, job, committed)),
            )

    def _ended(self, job: Job, committed: bool) -> None:
        partitions = self._in_flight or {}
        self._in_flight = None
        if not committed:
            return  # all of it is in the next job again
        for number, emissions in job.emissions.items():
            self._trajectories.inc(len(emissions))
            partitions[number].note_committed(len(emissions), job.offsets[number])


def portion(
    emitted: Mapping[int, Sequence[Emission]], most_records: int, most_bytes: int
) -> dict[int, Sequence[Emission]]:
    """Return each partition's first emissions that fit into one transaction, at least one in all.

    A partition without emissions is also in the result. A partition whose first emission no longer
    fits is not.
    """
    taken: dict[int, Sequence[Emission]] = {}
    records = 0
    size = 0
    for number, emissions in emitted.items():
        count = 0
        for emission in emissions:
            if records and (records == most_records or size + emission.size > most_bytes):
                break
            count = count + 1
            records = records + 1
            size = size + emission.size
        if count or not emissions:
            taken[number] = tuple(emissions[:count])
    return taken


def _taken_over_last(partition: Partition) -> bool:
    return not partition.owned
