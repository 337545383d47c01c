"""The manager's output outside of transactions: events, prompts, replies, dead letters.

An event counts only once it is read back (`Echoes`).
"""

from collections.abc import Sequence

from seamlessflow.consumers.trajectories.bus.held_replies import Addressed, HeldReplies
from seamlessflow.consumers.trajectories.decisions.context import Decision
from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.dead_letters import send_letter
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import GenerateTurn, ManagerStarted, PartitionClaimed, Record
from seamlessflow.schemas.topics import FLEET, PROMPTS, REPLIES, SESSIONS, Headers, fleet_key


class Echoes:
    """Events on their way to the log and back, by their bytes. Safe to call from any thread.

    An event comes back byte for byte as it was sent, and equal bytes are equal records. So keeping
    the record saves decoding it.
    """

    def __init__(self) -> None:
        self._expected: dict[bytes, Record] = {}

    def expect(self, value: bytes, event: Record) -> None:
        """Keep an event that is about to be sent."""
        self._expected[value] = event

    def decode(self, value: bytes) -> Record:
        """Return the record that `value` encodes. Raises `UndecodableRecord`."""
        record = self._expected.pop(value, None)
        # Unknown: a worker's event, a former owner's, or one that was forgotten.
        return decode(value) if record is None else record

    def forget(self) -> None:
        """Drop all events: some may never come back, others are then decoded like any record."""
        self._expected.clear()


class Outbox:
    """Queues records on one producer, so that earlier records are acknowledged first.

    Called on the main thread; no method waits for Kafka. Each method may raise `DeliveryFailed` for
    an earlier record. Then the process ends, because its state is ahead of the log.
    """

    def __init__(self, producer: Producer, echoes: Echoes, fleet: RolloutFleet) -> None:
        self._producer = producer
        self._echoes = echoes
        self._fleet = fleet
        self._held = HeldReplies()

    def carry_out(self, partition: Partition, decision: Decision, headers: Headers = ()) -> None:
        """Append the events, and send the prompts once all these events are on the log (I1).

        If both were sent together, a fast worker's output could arrive before its dispatch. Raises
        what `encode` raises, before anything has changed.
        """
        values = [self._producer.encode(event) for event in decision.events]
        partition.note_appended(decision.events)
        for _, prompt in decision.prompts:
            if isinstance(prompt, GenerateTurn):
                self._fleet.add_turn(prompt.worker)
        if not decision.events:
            self._send_prompts(decision, headers)

        # Called on the producer's thread, for the last event: those before it are on the log too.
        def appended(failure: DeliveryFailed | None, _: int) -> None:
            if failure is not None:
                raise failure  # ends the process: the decision is not on the log
            self._send_prompts(decision, headers)

        for event, value in zip(decision.events, values, strict=True):
            last = event is decision.events[-1] and bool(decision.prompts)
            self._echoes.expect(value, event)
            self._producer.send_bytes(
                SESSIONS.name,
                value,
                event.session_id,  # type: ignore[attr-defined]
                partition.number,
                headers,
                on_delivery=appended if last else None,
            )

    def announce(self, started: ManagerStarted) -> None:
        """Send this manager's announcement."""
        self._producer.send(FLEET.name, started, key=fleet_key(started))

    def claim(self, claim: PartitionClaimed) -> None:
        """Append this manager's claim to a partition."""
        self._producer.send(SESSIONS.name, claim, partition=claim.partition)

    def reply(self, partition: int, reply: Record, headers: Headers = ()) -> None:
        """Send a reply unmerged to the gateway that reads this partition of `replies`."""
        self._send_replies(self._held.pass_through(Addressed(partition, reply, headers)))

    def reply_merged(self, partition: int, reply: Record, headers: Headers = ()) -> None:
        """Send a reply, merged with its turn's next replies until `flush`.

        Not for a reply that may be a duplicate. A gateway drops duplicates by token offset, each
        whole or not at all, so their bounds must match the log.
        """
        self._send_replies(self._held.add(Addressed(partition, reply, headers)))

    def flush(self) -> None:
        """Send the replies that are held to be merged."""
        self._send_replies(self._held.release())

    def send_dead_letter(self, received: Received, error: str) -> None:
        """Send a record that cannot be decided or folded to its dead-letter topic."""
        letter = Letter(
            received.topic,
            received.partition,
            received.offset,
            received.key,
            self._producer.encode(received.record),
            error,
            received.headers,
        )
        send_letter(self._producer, letter)

    def _send_replies(self, replies: Sequence[Addressed]) -> None:
        for partition, reply, headers in replies:
            self._producer.send(REPLIES.name, reply, partition=partition, headers=headers)

    def _send_prompts(self, decision: Decision, headers: Headers) -> None:
        for slot, prompt in decision.prompts:
            self._producer.send(PROMPTS.name, prompt, partition=slot, headers=headers)
