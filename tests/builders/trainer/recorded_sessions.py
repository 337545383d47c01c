"""Sessions on `trajectories`, as a trajectory manager leaves them."""

from collections.abc import Sequence

from seamlessflow.infra.kafka.producer import TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES


def record_sessions(kafka: KafkaSettings, sessions: Sequence[Trajectory]) -> None:
    """Write trajectories as the trajectory manager does, in transactions."""
    producer = TransactionalProducer(kafka, "test-manager")
    reader = Reader(kafka, "test-manager-reader")

    def send() -> None:
        for session in sessions:
            producer.send(TRAJECTORIES.name, session, key=session.group_id)

    producer.commit(send, {}, reader)
    producer.close()
    reader.close()
