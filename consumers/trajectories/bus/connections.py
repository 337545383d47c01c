"""A manager's connections to Kafka, which own all its threads except the main one."""

from dataclasses import dataclass

from seamlessflow.consumers.trajectories.bus.committer import Committer
from seamlessflow.consumers.trajectories.bus.inbox import ManagerInbox
from seamlessflow.consumers.trajectories.bus.outbox import Echoes
from seamlessflow.consumers.trajectories.bus.readers import Member, Readers
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.schemas.topics import TRAJECTORIES


@dataclass(frozen=True, slots=True)
class Connections:
    """Records arrive in the inbox and leave through the producer and the committer."""

    manager: str
    """Name of the manager that uses these connections."""
    inbox: ManagerInbox
    echoes: Echoes
    readers: Readers
    producer: Producer
    committer: Committer
    largest_trajectory: int = TRAJECTORIES.max_record_bytes
    """Largest size in bytes for a trajectory with its tokens."""


def connect(
    settings: ManagerSettings,
    name: str,
    static: str | None,
    instruments: Instruments,
    stopping: Stopping,
) -> Connections:
    """Return the connections of the manager `name`. No reader polls yet.

    `static` is the part of the name that outlives a restart, or None if no part does. Waits until
    the manager's transactions can begin. Raises what `TransactionalProducer` raises.
    """
    kafka = settings.kafka
    group = settings.manager.group
    inbox = ManagerInbox()
    echoes = Echoes()
    trace = instruments.traces.send
    member = settings.manager.slot
    instance = f"manager-{static}" if static else None
    readers = Readers(
        kafka, Member(name, group, instance), inbox, echoes, instruments.metrics, stopping
    )
    producer = Producer(kafka, name, trace=trace)
    committer = Committer(kafka, member, producer, readers.requests, group, stopping, trace)
    largest = largest_trajectory(kafka)
    return Connections(name, inbox, echoes, readers, producer, committer, largest)


def close(connections: Connections) -> None:
    """End the transaction in progress, leave the consumer group and send all queued records."""
    # The committer needs the reader's membership of the group. The reader may wait for room in the
    # inbox, which the main thread no longer empties.
    connections.inbox.close()
    connections.committer.close()
    connections.readers.close()
    connections.producer.close()
