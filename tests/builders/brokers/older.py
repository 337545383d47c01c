"""A broker older than Kafka 4, as its clients see it: it does not know the new group protocol.

It is the one that librdkafka imitates, with a request taken away: releases of Kafka before 4 are
not among the jars of the embedded broker.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

from seamlessflow.infra.settings import KafkaSettings

_CONSUMER_GROUP_HEARTBEAT = 68
_ERROR_BYTES = 512


@contextmanager
def older_broker(topic: str) -> Iterator[KafkaSettings]:
    """Yield the address of such a broker with one topic."""
    library = _librdkafka()
    why = ctypes.create_string_buffer(_ERROR_BYTES)
    producer = 0
    client = ctypes.c_void_p(library.rd_kafka_new(producer, None, why, _ERROR_BYTES))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    request, unknown = ctypes.c_int16(_CONSUMER_GROUP_HEARTBEAT), ctypes.c_int16(-1)
    library.rd_kafka_mock_set_apiversion(cluster, request, unknown, unknown)
    library.rd_kafka_mock_topic_create(cluster, topic.encode(), 1, 1)
    try:
        address = library.rd_kafka_mock_cluster_bootstraps(cluster)
        yield KafkaSettings(bootstrap_servers=address.decode())
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)


def _librdkafka() -> ctypes.CDLL:
    """Return the library that confluent_kafka brings."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    for function in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, function).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
