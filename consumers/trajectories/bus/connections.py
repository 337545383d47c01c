"""A manager's connections to Kafka, which own all of its threads but the main one."""

from dataclasses import dataclass

from consumers.trajectories.bus.committer import Committer
from consumers.trajectories.bus.echoes import Echoes
from consumers.trajectories.bus.inbox import ManagerInbox
from consumers.trajectories.bus.readers import Readers
from consumers.trajectories.settings import ManagerSettings
from infra.kafka.producer import Producer


@dataclass(frozen=True, slots=True)
class Connections:
    """Records arrive in the inbox and leave through the producer and the committer."""

    inbox: ManagerInbox
    echoes: Echoes
    readers: Readers
    producer: Producer
    committer: Committer


def connect(settings: ManagerSettings, name: str) -> Connections:
    """Return the connections of the manager `name`. No reader polls yet."""
    kafka, group = settings.kafka, settings.manager.group
    inbox, echoes = ManagerInbox(), Echoes()
    readers = Readers(kafka, name, group, inbox, echoes)
    producer = Producer(kafka, name)
    committer = Committer(kafka, settings.manager.slot, producer, readers.requests, group)
    return Connections(inbox, echoes, readers, producer, committer)


def close(connections: Connections) -> None:
    """End the transaction in progress, leave the consumer group and send all queued records."""
    # The committer needs the reader's membership of the group, and the reader may be waiting for
    # room in the inbox, which the main thread no longer empties.
    connections.inbox.close()
    connections.committer.close()
    connections.readers.close()
    connections.producer.close()
