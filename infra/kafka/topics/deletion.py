"""Deletion of topics, and of records where partitions begin."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.client import Partition, client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.settings import KafkaSettings

_TIMEOUT_S = 60.0


def delete_topics(settings: KafkaSettings, names: Collection[str]) -> None:
    """Delete topics, by name without prefix; those that are gone already are no error.

    Raises `KafkaRefused` and `KafkaUnavailable`.
    """
    if not names:
        return
    full = [settings.topic_prefix + name for name in names]
    admin: AdminClient = client(AdminClient, client_options(settings))
    deleted = admin.delete_topics(full, operation_timeout=_TIMEOUT_S)
    _await(settings, deleted.values(), KafkaError.UNKNOWN_TOPIC_OR_PART)


def delete_before(settings: KafkaSettings, offsets: Mapping[Partition, int]) -> None:
    """Delete the records in front of these offsets. Raises `KafkaRefused`, `KafkaUnavailable`."""
    if not offsets:
        return
    places = [
        TopicPartition(settings.topic_prefix + topic, number, at)
        for (topic, number), at in offsets.items()
    ]
    admin: AdminClient = client(AdminClient, client_options(settings))
    asked = admin.delete_records(places, request_timeout=_TIMEOUT_S)
    _await(settings, asked.values(), KafkaError.NO_ERROR)


def _await(settings: KafkaSettings, futures: Iterable[Any], ignored: int) -> None:
    for future in futures:
        try:
            future.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in REFUSALS:
                raise KafkaRefused(settings.bootstrap_servers, reason.str()) from error
            if reason.code() != ignored:
                text = reason.str()
                raise KafkaUnavailable(settings.bootstrap_servers, _TIMEOUT_S, text) from error
