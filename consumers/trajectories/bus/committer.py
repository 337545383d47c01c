"""The committer: writes trajectories, session ends and offsets in one transaction.

The offsets cover the trajectories. The committer has its own thread and does one job at a time. It
opens a transaction only when everything in it is ready, because readers of `trajectories` wait at
an open one.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from seamlessflow.consumers.trajectories.sessions.partition import Emission, PartitionProgress
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaUnavailable, TransactionFailed
from seamlessflow.infra.kafka.client import LogPartition, TraceSend
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT
from seamlessflow.infra.kafka.producer import Producer, TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.transactions.hanging import transactional_id
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import ENDED_SESSIONS, REQUESTS, TRAJECTORIES

_log = logging.getLogger(__name__)
_SETTLE_TIMEOUT_S = 10
_SETTLE_POLL_S = 0.002
_METADATA_TIMEOUT_S = 2
_LOOKUP_S = 30.0
OnEnd = Callable[[bool], None]
"""Called on the committer's thread: True if the job was committed."""


@dataclass(frozen=True, slots=True)
class Job:
    """Content of one transaction."""

    emissions: Mapping[int, Sequence[Emission]]
    """By partition of `sessions`."""
    offsets: Mapping[int, tuple[int, PartitionProgress]]
    """Next offset of `requests` and the metadata committed with it, by partition."""
    sent: int
    """Number of records that the manager's producer had sent; all must be acknowledged first."""


class Committer:
    """The thread with the transactional producer. `idle` is set while it has no job."""

    def __init__(
        self,
        kafka: KafkaSettings,
        member: str,
        producer: Producer,
        requests: ReaderThread,
        group: str,
        stopping: Stopping = never,
        trace: TraceSend | None = None,
    ) -> None:
        """Wait until transactions can begin. Raises what `TransactionalProducer` raises."""
        self._kafka = kafka
        self._id = transactional_id(member)
        self._plain = producer
        self._requests = requests
        self._closing = threading.Event()
        self._group = group
        self._jobs: SimpleQueue[tuple[Job, OnEnd] | None] = SimpleQueue()
        self._trace = trace
        self._producer = TransactionalProducer(kafka, self._id, stopping, trace=trace)
        self.idle = threading.Event()
        self.idle.set()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, on_end: OnEnd) -> None:
        """Commit the job, then call `on_end`. Returns at once. Call it only when `idle`.

        A job that is not committed is no error: the caller submits its content again.
        """
        self.idle.clear()
        self._jobs.put((job, on_end))

    def close(self) -> None:
        """Finish the job in progress, unless Kafka does not answer; blocks for 30 s at most."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join(3 * _SETTLE_TIMEOUT_S)
        self._producer.close()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, on_end = item
            try:
                committed = self._commit(job)
            except KafkaUnavailable as error:
                if not self._closing.is_set():
                    raise
                _log.warning("ended before Kafka answered, so its state is open: %s", error)
                return
            finally:
                self.idle.set()  # the main thread may wait for it in a rebalance
            on_end(committed)

    def _commit(self, job: Job) -> bool:
        try:
            # The progress says that replies up to `covered` are sent: no later owner repeats them.
            self._await_settled(job.sent)
            # In a rebalance the reader waits for the main thread, which may wait for `idle`.
            metadata = self._requests.ask(_group_metadata, _METADATA_TIMEOUT_S)
        except TimeoutError as error:
            _log.warning("nothing committed, trying again: %s", error)
            return False
        offsets = {
            (REQUESTS.name, partition): (offset, progress.encode())
            for partition, (offset, progress) in job.offsets.items()
        }
        try:
            self._producer.commit(lambda: self._send(job), offsets, metadata)
        except TransactionFailed as error:
            _log.warning("transaction failed, reading the committed offsets: %s", error)
            return self._recover(job)
        return True

    def _send(self, job: Job) -> None:
        for number, emissions in job.emissions.items():
            for trajectory, ended, end_trace, turn_traces, _ in emissions:
                self._producer.send(
                    TRAJECTORIES.name,
                    trajectory,
                    key=trajectory.group_id,
                    headers=end_trace,
                    causes=turn_traces,
                )
                self._producer.send(
                    ENDED_SESSIONS.name, ended, key=ended.session_id, partition=number
                )

    def _await_settled(self, number: int) -> None:
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self._plain.settled(number):
            if time.monotonic() > deadline:
                raise TimeoutError(f"records sent were not acknowledged in {_SETTLE_TIMEOUT_S} s")
            time.sleep(_SETTLE_POLL_S)

    def _recover(self, job: Job) -> bool:
        """Return True if the failed transaction was committed after all.

        A new producer of the same id ends the old transaction, so that the answer is final. Waits
        until Kafka answers: a wrong guess would lose trajectories or commit them twice.
        """
        self._producer.abandon()
        wanted = [(REQUESTS.name, partition) for partition in job.offsets]
        closing = self._closing.is_set
        self._producer = TransactionalProducer(
            self._kafka, self._id, closing, WITHOUT_LIMIT, self._trace
        )
        committed = self._committed(wanted)
        # Each commit has its own progress, so equal progress proves that this one took effect. One
        # partition is enough: another may have a new owner that has committed since.
        return any(
            committed[REQUESTS.name, partition] == (offset, progress.encode())
            for partition, (offset, progress) in job.offsets.items()
        )

    def _committed(self, wanted: list[LogPartition]) -> Mapping[LogPartition, tuple[int, str]]:
        """Return the group's offsets and metadata, without joining the group.

        The reader of `requests` may be rebalancing. Uses a new client for each attempt. A client
        may have lost all brokers for ever, and `BrokerWatch` cannot see that here, since the client
        is not polled. Raises `KafkaUnavailable` once closing.
        """
        closing = self._closing.is_set
        while True:
            lookup = Reader(self._kafka, f"{self._id}-lookup", group=self._group, stopping=closing)
            try:
                return lookup.committed(wanted, _LOOKUP_S)
            except KafkaUnavailable as error:
                if closing() or error.timeout_s < _LOOKUP_S:  # it would stay the same
                    raise
            finally:
                lookup.close()


def _group_metadata(reader: Reader) -> Any:
    return reader.group_metadata()
