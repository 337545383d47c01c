"""Topics that belong to one test on the broker that all tests share."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka.admin import AdminClient

from infra.errors import KafkaUnavailable
from infra.kafka.topics.found import partition_counts
from infra.settings import KafkaSettings

DEADLINE_S = 30.0


@contextmanager
def own_topics(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield the broker with a prefix for topics, consumer groups and transactional ids.

    Deletes the topics: partitions take memory and open files of the broker, 520 for all topics.
    """
    settings = broker.model_copy(update={"topic_prefix": f"test-{uuid.uuid4().hex[:12]}."})
    yield settings
    names: list[str] = []
    with suppress(KafkaUnavailable):  # a broker of the test's own, which the test has stopped
        there = partition_counts(settings, timeout_s=5)
        names = [name for name in there if name.startswith(settings.topic_prefix)]
    if names:
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        for deleted in admin.delete_topics(names).values():
            deleted.result(DEADLINE_S)
