"""Record producers: an idempotent one, and one that commits offsets in the same transaction."""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from seamlessflow.infra.blobs import fitting_records
from seamlessflow.infra.clock import Stopping, never, within
from seamlessflow.infra.errors import (
    BlobUnavailable,
    DeliveryFailed,
    KafkaUnavailable,
    QueueFull,
    TransactionFailed,
)
from seamlessflow.infra.kafka.client import (
    STRANDED,
    LogPartition,
    SendSpan,
    TraceSend,
    producer_options,
    watched,
)
from seamlessflow.infra.kafka.messages import encoder
from seamlessflow.infra.kafka.outage import ASK_S, REFUSALS, WITHOUT_LIMIT, Outage, passes
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers
from seamlessflow.schemas.written import EncodeRecord

_POLL_S = 0.1
_TRANSACTION_TIMEOUT_S = 5
_SETTLE_SLICE_S = 4.0  # then `settle` looks whether the process must end

OnDelivery = Callable[[DeliveryFailed | None, int], None]
"""Called with the error or None, and the record's offset. The producer's thread calls it, or a
thread that finds the queue full, flushes it, or closes the producer."""


class Producer:
    """Idempotent producer with `acks=all`, for any thread.

    If a record without `on_delivery` fails, the next call raises its failure. `on_delivery` may
    come `report_every_s` late; that saves one wake-up of the thread for each record.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        *,
        linger_ms: float = 0,
        report_every_s: float = 0,
        waits_for_room: bool = True,  # False: a full queue is `QueueFull` for `send`
        trace: TraceSend | None = None,
        encode: EncodeRecord | None = None,  # None: as the settings say
        **options: Any,
    ) -> None:
        self.encode = encode or encoder(settings)  # as `send` does
        self._fitting = fitting_records(settings, self.encode)
        self._settings = settings
        self._prefix = settings.topic_prefix
        self._trace = trace
        self._report_every_s = report_every_s
        self._waits_for_room = waits_for_room
        self._failure: DeliveryFailed | None = None
        self._sent = 0
        self._numbering = threading.Lock()
        self._unsettled: dict[int, None] = {}
        configuration = {"linger.ms": linger_ms, **producer_options(settings, client_id), **options}
        self._watch, self._producer = watched(ConfluentProducer, configuration)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name=f"{client_id} deliveries", daemon=True
        )
        self._thread.start()

    def send(
        self,
        topic: str,
        record: Record,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        causes: Collection[Headers] = (),
    ) -> None:
        """Queue the record; return at once, unless the queue is full.

        `causes`: headers of the records that it was made from, for its trace. Raises an earlier
        record's `DeliveryFailed`, `WrittenReleaseLacks`, `BlobUnavailable` and `QueueFull`.
        """
        value = self.encode(record)
        self.send_bytes(topic, value, key, partition, headers, on_delivery, causes=causes)

    def send_bytes(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp_ms: int | None = None,
        causes: Collection[Headers] = (),
    ) -> None:
        """Queue an encoded record; `timestamp_ms` is by default the present.

        If the record is too large for the topic, its blob is written and a reference is queued.
        Raises an earlier record's `DeliveryFailed`, `BlobUnavailable` and `QueueFull`.
        """
        self.check()
        value = self._fitting(topic, value)
        options = {"partition": partition, "timestamp": timestamp_ms}
        place: dict[str, Any] = {name: at for name, at in options.items() if at is not None}
        span = None
        if headers or causes:
            carried = headers or ()
            span = None if self._trace is None else self._trace(topic, carried, key, causes)
            place["headers"] = list(carried if span is None else span.headers or carried)
        with self._numbering:  # delivery callbacks also send, on the producer's own thread
            self._sent += 1
            number = self._sent
            self._unsettled[number] = None

        def report(error: KafkaError | None, message: Message) -> None:
            self._unsettled.pop(number, None)
            failure = None if error is None else _delivery_failed(error, message)
            if span is not None:
                _end_span(span, message, failure)
            if on_delivery is not None:
                offset = message.offset()
                on_delivery(failure, -1 if offset is None else offset)
            elif failure is not None:
                self._failure = failure

        while True:
            try:
                self._producer.produce(
                    self._prefix + topic, value, key, on_delivery=report, **place
                )
                return
            except BufferError:
                self._await_room(QueueFull(topic, partition, key), number, span)
            except KafkaException as error:
                raise DeliveryFailed(topic, partition, key, str(error)) from error

    @property
    def sent(self) -> int:
        """Count of records sent so far."""
        return self._sent

    def settled(self, number: int) -> bool:
        """Return whether the first `number` records sent are all acknowledged or reported lost."""
        # Numbers are inserted in ascending order: the first one is the oldest unsettled record.
        return next(iter(list(self._unsettled)[:1]), number + 1) > number

    def check(self) -> None:
        """Raise an earlier record's failure, if there was one."""
        if self._failure is not None:
            raise self._failure

    def flush(self, timeout_s: float) -> None:
        """Wait until all queued records are acknowledged. Raises `KafkaUnavailable`."""
        left = self._producer.flush(timeout_s)
        if left:
            reason = f"{left} records not acknowledged"
            raise KafkaUnavailable(self._settings.bootstrap_servers, timeout_s, reason)
        self.check()

    def settle(self, stopping: Stopping) -> None:
        """Wait until all queued records are acknowledged, however long an outage lasts.

        Raises `KafkaUnavailable` once `stopping`.
        """
        outage = Outage(self._settings, stopping, WITHOUT_LIMIT)
        while left := self._producer.flush(_SETTLE_SLICE_S):
            outage.endure_silence(f"{left} records not acknowledged")
        self.check()

    def close(self, timeout_s: float = 20) -> None:
        """Flush and end. Raises `KafkaUnavailable` and gives up unacknowledged records."""
        try:
            self.flush(timeout_s)
        finally:
            self.abandon()
            with suppress(KafkaException):  # a fenced instance has no transaction left to abort
                self._producer.close()

    def abandon(self) -> None:
        """End at once and give up unacknowledged records."""
        self._closed.set()
        self._thread.join()
        self._producer.purge()
        with suppress(KafkaException):  # raised by an instance after a fatal error
            self._producer.poll(0)  # reports that are not fetched keep the client alive

    def _await_room(self, full: QueueFull, number: int, span: SendSpan | None) -> None:
        # A record leaves the queue when its delivery or its failure is reported.
        if self._producer.poll(_POLL_S if self._waits_for_room else 0) or self._waits_for_room:
            return
        self._unsettled.pop(number)
        if span is not None:
            _end_span(span, None, full)
        raise full

    def _serve(self) -> None:
        while not self._closed.wait(self._report_every_s):
            self._producer.poll(_POLL_S)
            if self._watch.stranded:  # its queued records cannot be taken from it
                raise KafkaUnavailable(self._settings.bootstrap_servers, 0, STRANDED)


class TransactionalProducer(Producer):
    """Producer that writes records together with the offsets that cover them, all or nothing.

    `TransactionFailed` is fatal to the instance. Abandon it and make another with the same id: that
    ends the open transaction.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        stopping: Stopping = never,
        limit_s: float | None = None,
        trace: TraceSend | None = None,
    ) -> None:
        """Wait for the coordinator. Raises what `Outage.endure` raises, and `TransactionFailed`."""
        options: dict[str, Any] = {
            "transactional.id": settings.topic_prefix + transactional_id,
            "transaction.timeout.ms": 5_000,
            "socket.timeout.ms": 4_900,  # Kafka's client refuses more than the transaction's
            "message.timeout.ms": 5_000,
        }
        super().__init__(settings, transactional_id, trace=trace, **options)
        self._transactional_id = transactional_id
        try:
            self._initialise(Outage(settings, stopping, limit_s))
        except BaseException:
            self.abandon()
            raise

    def commit(
        self,
        send: Callable[[], None],
        offsets: Mapping[LogPartition, tuple[int, str]],
        group_metadata: Any,
    ) -> None:
        """Commit what `send` sends and a consumer group's `offsets` (next offset, metadata).

        Raises `TransactionFailed`; then only the log shows whether the transaction took effect.
        """
        positions = [
            TopicPartition(self._prefix + topic, partition, offset, metadata)
            for (topic, partition), (offset, metadata) in offsets.items()
        ]
        try:
            self._producer.begin_transaction()
            send()
            # A group coordinator that is lost between two requests would be waited for without end
            # (librdkafka issue 5456).
            within(3 * _TRANSACTION_TIMEOUT_S, lambda: self._end(positions, group_metadata))
        except (KafkaException, DeliveryFailed, TimeoutError, BlobUnavailable) as error:
            raise TransactionFailed(self._transactional_id, str(error)) from error

    def _end(self, positions: list[TopicPartition], group_metadata: Any) -> None:
        if positions:
            self._producer.send_offsets_to_transaction(
                positions, group_metadata, _TRANSACTION_TIMEOUT_S
            )
        self._producer.commit_transaction(_TRANSACTION_TIMEOUT_S)

    def _initialise(self, outage: Outage) -> None:
        """End the transaction of an earlier producer with this id; try again after a time-out."""
        while True:
            try:
                return self._producer.init_transactions(ASK_S)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if not passes(reason) and reason.code() not in REFUSALS:
                    raise TransactionFailed(self._transactional_id, reason.str()) from error
                outage.endure(reason)

    def _serve(self) -> None:
        with suppress(KafkaException):  # fatal to the instance; `commit` raises it
            super()._serve()


def _end_span(span: SendSpan, message: Any, failure: DeliveryFailed | None) -> None:
    if failure is None:
        span.set(partition=str(message.partition()), offset=message.offset())
    else:
        span.fail(str(failure))
    span.end()


def _delivery_failed(error: KafkaError, message: Message) -> DeliveryFailed:
    return DeliveryFailed(str(message.topic()), message.partition(), message.key(), error.str())
