"""The gateway's link to Kafka: commands out, replies in, heartbeats.

A thread reads this gateway's partition of `replies`. It begins at the partition's end, looked up
before the first command is sent, so no reply is missed. An error ends the thread and with it the
process.

Kafka counts as reachable while it acknowledges heartbeats. If a command could not be written, the
call that waits for it gets 503 at once.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import xxhash

from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.errors import (
    DeliveryFailed,
    KafkaUnavailable,
    QueueFull,
    WrittenReleaseLacks,
)
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.gateway.errors import ApiError, refused
from seamlessflow.producers.gateway.replies import (
    OK,
    ExpectedReply,
    PendingReplies,
    ReplyInbox,
    ReplyRecord,
)
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import (
    CommandAnswered,
    GatewayHeartbeat,
    ReplyAddress,
    ReplyDelta,
    ReplyFinished,
)
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.topics import (
    FLEET,
    REPLIES,
    REQUESTS,
    GatewayQuestion,
    Headers,
    SessionCommand,
    fleet_key,
)

RequestRecord = SessionCommand | GatewayQuestion
_HEARTBEAT_S = 1.0
_FIRST_HEARTBEATS_S = 0.1
# Looking at delivery reports after each record would cost CPU; this is soon enough.
_REPORT_EVERY_S = 0.05
# Room for a record's key and headers within the largest record that the topic takes.
_ENVELOPE_BYTES = 1024
_POLL_S = 0.2
_JOIN_S = 5.0
_REPLIES = (ReplyFinished, ReplyDelta, CommandAnswered)


class Link:
    """One gateway's connection to Kafka. Its methods run on the event loop it was made on."""

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: GatewaySection,
        url: str,
        instance: str,
        instruments: Instruments,
        replies: int = REPLIES.partitions,
        stopping: Stopping = never,
    ) -> None:
        """Connect; `replies` is how many partitions that topic has."""
        self._stopping = stopping
        self.instance = instance
        partition = xxhash.xxh3_64_intdigest(instance.encode()) % replies
        self.address = ReplyAddress(partition=partition, gateway=instance)
        self._kafka = kafka
        self._settings = settings
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._pending: PendingReplies[ExpectedReply] = PendingReplies()
        self._acknowledged = float("-inf")
        self._unclaimed = instruments.metrics.counter(
            "seamlessflow_gateway_replies_ignored_total", reason="nobody_waits"
        )
        limits: dict[str, Any] = {
            "message.timeout.ms": int(settings.kafka_timeout_s * 1000),
            "queue.buffering.max.kbytes": settings.max_in_flight_bytes // 1024,
        }
        self._producer = Producer(
            kafka,
            f"gateway-{self.instance}",
            linger_ms=settings.linger_ms,
            report_every_s=_REPORT_EVERY_S,
            waits_for_room=False,  # waiting would stop the event loop, and with it all calls
            trace=instruments.traces.send,
            **limits,
        )
        self._reply_reader = _ReplyReader(
            kafka,
            self.instance,
            self.address.partition,
            self._producer,
            self._deliver,
            instruments.traces,
            stopping,
        )
        instruments.metrics.watch(self._reply_reader.reader)

    async def start(self) -> None:
        """Begin to read replies, and wait until Kafka acknowledges a heartbeat.

        Raises `KafkaUnavailable` after `kafka.wait_s` or once `stopping`, and `TopicMissing`.
        """
        await self._reply_reader.start()
        deadline = self._loop.time() + self._kafka.wait_s
        self._send_heartbeat()
        while not self.reachable:
            if self._loop.time() > deadline or self._stopping():
                raise KafkaUnavailable(self._kafka.bootstrap_servers, self._kafka.wait_s)
            await asyncio.sleep(_FIRST_HEARTBEATS_S)
            self._send_heartbeat()

    async def send_heartbeats(self) -> None:
        """Send a heartbeat to `fleet` every second, until cancelled."""
        while True:
            self._send_heartbeat()
            await asyncio.sleep(_HEARTBEAT_S)

    def close(self) -> None:
        """Stop the reader, write all queued commands, and report that this end is orderly."""
        self._reply_reader.close()
        with suppress(WrittenReleaseLacks):  # without it the gateway looks as if it were frozen
            self._send_heartbeat(ending=True)
        self._producer.close(self._settings.kafka_timeout_s)

    @property
    def kafka(self) -> KafkaSettings:
        """Return the cluster's settings, for modules that read the log."""
        return self._kafka

    @property
    def reachable(self) -> bool:
        """Return whether Kafka acknowledged a heartbeat within `kafka_timeout_s`."""
        return time.monotonic() - self._acknowledged < self._settings.kafka_timeout_s

    def command_fields(self, session_id: str, expiry_s: float) -> dict[str, Any]:
        """Return the fields that every session command has, for a new command."""
        issued_at_ms = now_ms()
        return {
            "command_id": secrets.token_hex(12),
            "session_id": session_id,
            "issued_at_ms": issued_at_ms,
            "expires_at_ms": issued_at_ms + int(expiry_s * 1000),
            "reply": self.address,
        }

    def send(
        self, command: RequestRecord, expected: ExpectedReply | None, headers: Headers = ()
    ) -> None:
        """Send a command; `expected` gets the replies. Raises `ApiError` (413, 501, 503)."""
        try:
            value = self._producer.encode(command)
        except WrittenReleaseLacks as error:
            raise ApiError(501, str(error), code="upgrade_under_way") from error
        if len(value) > REQUESTS.max_record_bytes - _ENVELOPE_BYTES:
            message = f"the request takes {len(value)} bytes on the log, which is too many"
            raise ApiError(413, message, code="request_too_large")
        if expected is not None:
            self._pending.add(expected)
        report = partial(self._on_delivery, expected)
        try:
            self._producer.send_bytes(
                REQUESTS.name, value, session_name(command.session_id), None, headers, report
            )
        except DeliveryFailed as error:
            if expected is not None:
                self._pending.remove(expected)
            raise _unreachable(str(error)) from error

    def forget(self, expected: ExpectedReply) -> bool:
        """Stop waiting for a reply. Return whether no other call waits for the same reply."""
        return self._pending.remove(expected)

    def delivered(self, expected: ExpectedReply) -> None:
        """Stop waiting for a turn that a client has got. Let the turn's other calls know this."""
        if not self._pending.remove(expected):
            for other in self._pending.others(expected):
                other.delivered = True

    def refuse_all(self, error: ApiError) -> None:
        """End every call that waits for a reply with an error."""
        for expected in list(self._pending):
            expected.inbox.put(error)

    async def ask(self, command: RequestRecord, headers: Headers = ()) -> ReplyRecord:
        """Send a session command and return its reply.

        Raises `ApiError` (413, 503, 504), and the manager's refusal.
        """
        inbox = ReplyInbox()
        expected = ExpectedReply(inbox, command.session_id, command.command_id, 0, False)
        timeout_s = self._settings.command_timeout_s
        try:
            self.send(command, expected, headers)
            async with asyncio.timeout(timeout_s):
                _, reply = await inbox.next_reply()
        except TimeoutError:
            raise ApiError(504, f"no answer within {timeout_s:g} s", code="timeout") from None
        finally:
            self.forget(expected)
        if isinstance(reply, CommandAnswered) and reply.status != OK:
            raise refused(reply.status, reply.reason, reply.detail)
        return reply

    def _deliver(self, replies: Sequence[ReplyRecord]) -> None:
        for reply in replies:
            receivers = self._pending.route(reply)
            for expected in receivers:
                expected.receive(reply)
            if not receivers:
                self._unclaimed.inc()

    def _on_delivery(
        self, expected: ExpectedReply | None, error: DeliveryFailed | None, _: int
    ) -> None:
        # Runs in the producer's thread; inboxes belong to the event loop.
        if error is not None and expected is not None:
            refusal = _unreachable(str(error))
            self._loop.call_soon_threadsafe(expected.inbox.put, refusal)

    def _send_heartbeat(self, ending: bool = False) -> None:
        heartbeat = GatewayHeartbeat(
            gateway=self.instance,
            partition=self.address.partition,
            url=self._url,
            in_flight=len(self._pending),
            at_ms=now_ms(),
            release=this_release().version,
            ending=ending,
        )
        with suppress(QueueFull):  # Kafka is not reachable then; the missing heartbeat shows it
            self._producer.send(
                FLEET.name,
                heartbeat,
                key=fleet_key(heartbeat),
                on_delivery=self._on_heartbeat_delivery,
            )

    def _on_heartbeat_delivery(self, error: DeliveryFailed | None, _: int) -> None:
        # Runs in the producer's thread; assigning a float needs no lock.
        if error is None:
            self._acknowledged = time.monotonic()


class _ReplyReader:
    """A thread that passes the replies to `gateway` on to `deliver`, in log order.

    `deliver` runs on the event loop that made the reader.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        gateway: str,
        partition: int,
        producer: Producer,
        deliver: Callable[[Sequence[ReplyRecord]], None],
        tracing: Telemetry,
        stopping: Stopping,
    ) -> None:
        self._gateway = gateway
        self._tracing = tracing
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._partition = partition
        letters = DeadLetters(settings, producer, stopping)
        client_id = f"gateway-{gateway}"
        self.reader = Reader(
            settings, client_id, rules=ReadingRules(bury=letters.bury), stopping=stopping
        )
        self._thread = threading.Thread(target=self._serve, name="replies", daemon=True)

    async def start(self) -> None:
        """Begin at the partition's end. Raises `KafkaUnavailable` and `TopicMissing`."""
        ends = await asyncio.to_thread(self.reader.ends, [(REPLIES.name, self._partition)])
        self.reader.assign(ends)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._thread.join(_JOIN_S)

    def _serve(self) -> None:
        while not self._closed.is_set():
            replies = []
            for item in self.reader.poll(_POLL_S):
                if isinstance(item.record, _REPLIES) and item.record.gateway == self._gateway:
                    self._tracing.process(item).end()
                    replies.append(item.record)
            if replies:
                # One call a batch: waking the event loop costs a system call.
                self._loop.call_soon_threadsafe(self._deliver, replies)
        self.reader.close()


def _unreachable(detail: str) -> ApiError:
    return ApiError(503, f"Kafka is not reachable: {detail}", code="kafka_unavailable")
