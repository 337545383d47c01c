"""What connects a manager to Kafka; all threads beside the main one are behind it."""

from dataclasses import dataclass

from consumers.trajectories.bus.committer import Committer
from consumers.trajectories.bus.echoes import Echoes
from consumers.trajectories.bus.inbox import Inbox
from consumers.trajectories.bus.readers import Readers
from consumers.trajectories.settings import ManagerSettings
from infra.kafka.producer import Producer


@dataclass(frozen=True, slots=True)
class Connections:
    """What is read comes to the inbox; what is written goes through producer and committer."""

    inbox: Inbox
    echoes: Echoes
    readers: Readers
    producer: Producer
    committer: Committer


def connect(settings: ManagerSettings, name: str) -> Connections:
    """Connections of the manager of this name."""
    kafka, group = settings.kafka, settings.manager.group
    inbox, echoes = Inbox(), Echoes()
    readers = Readers(kafka, name, group, inbox, echoes)
    producer = Producer(kafka, name)
    committer = Committer(kafka, settings.manager.slot, producer, readers.requests, group)
    return Connections(inbox, echoes, readers, producer, committer)


def close(connections: Connections) -> None:
    """Ends the transaction at hand, leaves the group and writes what is queued."""
    connections.committer.close()
    connections.readers.close()
    connections.producer.close()
