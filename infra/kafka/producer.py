"""Producers of records: an idempotent one, and one that commits offsets in the same transaction."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from infra.errors import DeliveryFailed, KafkaUnavailable, TransactionFailed
from infra.kafka.client import LARGEST_RECORD_BYTES, Headers, Partition, client, client_options
from infra.settings import KafkaSettings
from schemas.codec import encode
from schemas.records import Record

_POLL_S = 0.1
_TRANSACTION_TIMEOUT_S = 5
_INIT_TIMEOUT_S = 10
_IN_FLIGHT = 2

OnDelivery = Callable[[DeliveryFailed | None, int], None]
"""Called from the producer's thread with the error or None, and the record's offset."""


class Producer:
    """Idempotent producer with `acks=all`, for any thread.

    The failure of a record without `on_delivery` is raised by the next call. `report_every_s` is
    the longest delay of `on_delivery`; it saves one wake-up of the thread for each record.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        *,
        linger_ms: float = 0,
        report_every_s: float = 0,
        **options: Any,
    ) -> None:
        self._prefix = settings.topic_prefix
        self._settings = settings
        self._report_every_s = report_every_s
        self._failure: DeliveryFailed | None = None
        self._sent = 0
        self._numbering = threading.Lock()
        self._unsettled: dict[int, None] = {}
        self._producer = client(
            ConfluentProducer,
            {
                "client.id": client_id,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "linger.ms": linger_ms,
                # Records sent meanwhile share the next request, so batches grow with the load.
                "max.in.flight.requests.per.connection": _IN_FLIGHT,
                "compression.type": "none",
                "message.max.bytes": LARGEST_RECORD_BYTES,
                "queue.buffering.max.kbytes": 1_048_576,
                **client_options(settings),
                **options,
            },
        )
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
    ) -> None:
        """Queue the record; return at once. Raises `DeliveryFailed` of an earlier record."""
        self.send_bytes(topic, encode(record), key, partition, headers, on_delivery)

    def send_bytes(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queue bytes as they are. Raises `DeliveryFailed` of an earlier record."""
        self.check()
        place: dict[str, Any] = {} if partition is None else {"partition": partition}
        if headers:
            place["headers"] = list(headers)
        with self._numbering:  # delivery callbacks also send, on the producer's own thread
            self._sent += 1
            number = self._sent
            self._unsettled[number] = None

        def report(error: KafkaError | None, message: Message) -> None:
            self._unsettled.pop(number, None)
            failure = None if error is None else _delivery_failed(error, message)
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
            except BufferError:  # the queue is full: wait until records have left it
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                raise DeliveryFailed(topic, partition, key, str(error)) from error

    @property
    def sent(self) -> int:
        """Number of records sent so far."""
        return self._sent

    def settled(self, number: int) -> bool:
        """Return whether the first `number` records sent are all acknowledged or reported lost."""
        # Numbers are inserted in ascending order: the first one is the oldest unsettled record.
        return next(iter(list(self._unsettled)[:1]), number + 1) > number

    def check(self) -> None:
        """Raise the failure of an earlier record, if there was one."""
        if self._failure is not None:
            raise self._failure

    def flush(self, timeout_s: float) -> None:
        """Wait until all queued records are acknowledged. Raises `KafkaUnavailable`."""
        left = self._producer.flush(timeout_s)
        if left:
            reason = f"{left} records not acknowledged"
            raise KafkaUnavailable(self._settings.bootstrap_servers, timeout_s, reason)
        self.check()

    def close(self, timeout_s: float = 10) -> None:
        """Flush and end. Raises `KafkaUnavailable` and gives up what was not acknowledged."""
        try:
            self.flush(timeout_s)
        finally:
            self.abandon()
            self._producer.close()

    def abandon(self) -> None:
        """End at once and give up what was not acknowledged."""
        self._closed.set()
        self._thread.join()
        self._producer.purge()
        with suppress(KafkaException):  # raised by an instance after a fatal error
            self._producer.poll(0)  # reports that are not fetched keep the client alive

    def _serve(self) -> None:
        while not self._closed.wait(self._report_every_s):
            self._producer.poll(_POLL_S)


class TransactionalProducer(Producer):
    """Producer of records together with the offsets that cover them, all or nothing.

    `TransactionFailed` is fatal to the instance: abandon it and make another of the same id, which
    ends the open transaction of this one.
    """

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        options: dict[str, Any] = {
            "transactional.id": settings.topic_prefix + transactional_id,
            "transaction.timeout.ms": 5_000,
            "message.timeout.ms": 5_000,
        }
        super().__init__(settings, transactional_id, **options)
        self._transactional_id = transactional_id
        try:
            self._producer.init_transactions(_INIT_TIMEOUT_S)
        except KafkaException as error:
            self.abandon()
            raise TransactionFailed(transactional_id, str(error)) from error

    def commit(
        self,
        send: Callable[[], None],
        offsets: Mapping[Partition, tuple[int, str]],
        group_metadata: Any,
    ) -> None:
        """Commit what `send` sends and a consumer group's `offsets` (next offset, metadata).

        Raises `TransactionFailed`; only the log shows then whether the transaction took effect.
        """
        positions = [
            TopicPartition(self._prefix + topic, partition, offset, metadata)
            for (topic, partition), (offset, metadata) in offsets.items()
        ]
        try:
            self._producer.begin_transaction()
            send()
            if positions:
                self._producer.send_offsets_to_transaction(
                    positions, group_metadata, _TRANSACTION_TIMEOUT_S
                )
            self._producer.commit_transaction(_TRANSACTION_TIMEOUT_S)
        except (KafkaException, DeliveryFailed) as error:
            raise TransactionFailed(self._transactional_id, str(error)) from error

    def _serve(self) -> None:
        with suppress(KafkaException):  # fatal to the instance; `commit` raises it
            super()._serve()


def _delivery_failed(error: KafkaError, message: Message) -> DeliveryFailed:
    return DeliveryFailed(str(message.topic()), message.partition(), message.key(), error.str())
