"""Commits trajectories and the offsets that cover them, in one transaction, off the main thread.

One job at a time. A transaction is opened only when all it needs is ready, so that it never holds
up the readers of `trajectories`.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from consumers.trajectories.sessions.partition import PartitionProgress
from infra.errors import KafkaUnavailable, TransactionFailed
from infra.kafka.producer import Producer, TransactionalProducer
from infra.kafka.reader import Reader
from infra.kafka.reader_thread import ReaderThread
from infra.settings import KafkaSettings
from schemas.records import Trajectory
from schemas.topics import REQUESTS, TRAJECTORIES

_log = logging.getLogger(__name__)
_SETTLE_TIMEOUT_S = 10
_SETTLE_POLL_S = 0.002
_METADATA_TIMEOUT_S = 2
Done = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What one transaction commits."""

    trajectories: Mapping[int, Sequence[Trajectory]]
    """By the partition of `sessions` they come from."""
    offsets: Mapping[int, tuple[int, PartitionProgress]]
    sent: int
    """Records that the manager's producer must have had acknowledged before."""


class Committer:
    """A thread with the transactional producer."""

    def __init__(
        self,
        kafka: KafkaSettings,
        member: str,
        producer: Producer,
        requests: ReaderThread,
        group: str,
    ) -> None:
        self._kafka = kafka
        self._id = f"trajectories-{member}"
        self._plain = producer
        self._requests = requests
        self._lookup = Reader(kafka, f"{self._id}-lookup", group=group)
        """Never subscribes: reads committed offsets while the group's member may be busy."""
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._producer = TransactionalProducer(kafka, self._id)
        self._closing = threading.Event()
        self.idle = threading.Event()
        self.idle.set()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done) -> None:
        """Commits the job, and tells from its own thread whether it took; only when `idle`."""
        self.idle.clear()
        self._jobs.put((job, done))

    def close(self) -> None:
        """Finishes the job at hand, unless Kafka does not answer."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join(3 * _SETTLE_TIMEOUT_S)
        self._producer.close()
        self._lookup.close()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                took = self._commit(job)
            finally:
                self.idle.set()
            done(took)

    def _commit(self, job: Job) -> bool:
        try:
            self._await_settled(job.sent)
            # A rebalance holds the reader until the partitions' owner is ready: do not wait long.
            metadata = self._requests.ask(_group_metadata, _METADATA_TIMEOUT_S)
        except TimeoutError as error:
            _log.warning("nothing committed, to be tried again: %s", error)
            return False
        offsets = {
            (REQUESTS.name, partition): (offset, progress.encode())
            for partition, (offset, progress) in job.offsets.items()
        }
        try:
            self._producer.commit(lambda: self._send(job), offsets, metadata)
        except TransactionFailed as error:
            _log.warning("transaction failed, looking what the log holds: %s", error)
            return self._recover(job)
        return True

    def _send(self, job: Job) -> None:
        for trajectories in job.trajectories.values():
            for trajectory in trajectories:
                self._producer.send(TRAJECTORIES.name, trajectory, key=trajectory.group_id)

    def _await_settled(self, number: int) -> None:
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self._plain.settled(number):
            if time.monotonic() > deadline:
                raise TimeoutError(f"records sent were not acknowledged in {_SETTLE_TIMEOUT_S} s")
            time.sleep(_SETTLE_POLL_S)

    def _recover(self, job: Job) -> bool:
        """A new producer, which ends the old transaction; whether that had been committed.

        As long as Kafka does not answer nobody knows, so it is asked again.
        """
        self._producer.abandon()
        wanted = [(REQUESTS.name, partition) for partition in job.offsets]
        while True:
            try:
                self._producer = TransactionalProducer(self._kafka, self._id)
                found = self._lookup.committed(wanted)
                break
            except (TransactionFailed, KafkaUnavailable) as error:
                if self._closing.is_set():
                    raise
                _log.warning("not known yet whether the transaction took effect: %s", error)
        return all(
            PartitionProgress.decode(found[REQUESTS.name, partition][1]) == progress
            for partition, (_, progress) in job.offsets.items()
        )


def _group_metadata(reader: Reader) -> Any:
    return reader.group_metadata()
