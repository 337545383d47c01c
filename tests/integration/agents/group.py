"""Progress that the Kafka consumer group of the agents has committed."""

from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import TASKS
from tests.builders.own_topics import SMALL

GROUP = "agents"


def committed(kafka: KafkaSettings) -> int:
    """Return the number of tasks that the consumer group has committed as ended."""
    return sum(offset for offset, _ in progress(kafka) if offset > 0)


def progress(kafka: KafkaSettings) -> list[tuple[int, str]]:
    """Return the committed offset and metadata of each partition."""
    reader = Reader(kafka, "looking", group=GROUP)
    partitions = [(TASKS.name, number) for number in range(SMALL[TASKS.name].partitions)]
    offsets = reader.committed(partitions)
    reader.close()
    return list(offsets.values())


def begun(kafka: KafkaSettings) -> int:
    """Return the number of tasks that the consumer group has committed as begun."""
    return sum(int(metadata or 0) for _, metadata in progress(kafka))
