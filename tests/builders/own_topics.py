"""Topics that belong to one test on the broker that all tests share, and small ones."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import PROMPTS, TOPICS, Topic

DEADLINE_S = 120.0
_PARTITIONS = {PROMPTS.name: 16}
_MOST = 8
SMALL: Mapping[str, Topic] = {
    name: replace(topic, partitions=min(topic.partitions, _PARTITIONS.get(name, _MOST)))
    for name, topic in TOPICS.items()
}
"""The topics with fewer partitions: each takes the broker 2 ms of CPU, the manager a claim. The
workers of a test need one each on `prompts`."""


def small(*topics: Topic) -> list[Topic]:
    """Return these topics with few partitions, otherwise as they are."""
    return [replace(topic, partitions=SMALL[topic.name].partitions) for topic in topics]


@contextmanager
def own_topics(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield the broker with a prefix for topics, consumer groups and transactional ids.

    Deletes the topics: partitions take memory and open files of the broker.
    """
    settings = broker.model_copy(update={"topic_prefix": f"test-{uuid.uuid4().hex[:12]}."})
    yield settings
    names: list[str] = []
    with suppress(KafkaUnavailable):  # a broker of the test's own, which the test has stopped
        counts = partition_counts(settings, timeout_s=5)
        names = [name for name in counts if name.startswith(settings.topic_prefix)]
    if names:
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        for deleted in admin.delete_topics(names).values():
            deleted.result(DEADLINE_S)
