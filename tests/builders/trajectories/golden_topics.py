"""Golden logs on a real broker: topics with the records of a run, each at its place."""

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from tests.builders.own_topics import small
from tests.golden.golden_log import LOGS, GoldenLog, read

DEADLINE_S = 120


def golden_log() -> GoldenLog:
    """Return the golden log of the first release."""
    return read(LOGS / "0_1_0.jsonl.xz")


def write_golden(kafka: KafkaSettings, log: GoldenLog) -> None:
    """Create `sessions` and `trajectories`, and write the log's records at their places."""
    create_topics(kafka, small(SESSIONS, TRAJECTORIES))
    producer = Producer(kafka, "golden", linger_ms=5)
    for topic in (SESSIONS, TRAJECTORIES):
        for record in log[topic.name]:
            producer.send_bytes(
                topic.name,
                record.value,
                record.key,
                partition=record.partition,
                headers=record.headers,
            )
    producer.flush(DEADLINE_S)
    producer.close()
