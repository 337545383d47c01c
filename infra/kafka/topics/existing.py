"""Topics as they are on the cluster, and the deletion of topics or of their first records."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.kafka.client import LogPartition, client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.settings import KafkaSettings

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as it is on the cluster."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def found_topics(settings: KafkaSettings, names: Sequence[str]) -> dict[str, FoundTopic]:
    """Return the topics that exist, by full name.

    Raises `KafkaUnavailable`, and `KafkaRefused` for a topic that the user may not describe.
    """
    admin = client(AdminClient, client_options(settings))
    asked = admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_S)
    answers = {name: _answer(settings, name, asked[name]) for name in names}
    present = [name for name, topic in answers.items() if topic is not None]
    if not present:
        return {}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in present]
    configs = {
        resource.name: _answer(settings, resource.name, future)
        for resource, future in admin.describe_configs(
            resources, request_timeout=_TIMEOUT_S
        ).items()
    }
    return joined_answers(answers, configs)


def joined_answers(
    topics: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, FoundTopic]:
    """Return the topics that both answers know. Pure.

    Each answer may come from another broker, and a new topic is not known to all at once.
    """
    return {
        name: _found(topic, config)
        for name, topic in topics.items()
        if topic is not None and (config := configs.get(name)) is not None
    }


def partition_counts(settings: KafkaSettings, timeout_s: float = 10) -> dict[str, int]:
    """Return the partition count of every topic on the cluster, by full name.

    Topics that the user may not see are left out. Raises `KafkaUnavailable` and `KafkaRefused`.
    """
    try:
        listed = client(AdminClient, client_options(settings)).list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise _failed(settings, error.args[0], timeout_s) from error
    return {name: len(topic.partitions) for name, topic in listed.topics.items()}


def delete_topics(settings: KafkaSettings, names: Collection[str]) -> None:
    """Delete topics, by name without prefix; a topic that is gone already is no error.

    Raises `KafkaRefused` and `KafkaUnavailable`.
    """
    if not names:
        return
    full = [settings.topic_prefix + name for name in names]
    admin: AdminClient = client(AdminClient, client_options(settings))
    deleted = admin.delete_topics(full, operation_timeout=_TIMEOUT_S)
    _await(settings, deleted.values(), KafkaError.UNKNOWN_TOPIC_OR_PART)


def delete_before(settings: KafkaSettings, offsets: Mapping[LogPartition, int]) -> None:
    """Delete the records before these offsets. Raises `KafkaRefused`, `KafkaUnavailable`."""
    if not offsets:
        return
    places = [
        TopicPartition(settings.topic_prefix + topic, number, at)
        for (topic, number), at in offsets.items()
    ]
    admin: AdminClient = client(AdminClient, client_options(settings))
    asked = admin.delete_records(places, request_timeout=_TIMEOUT_S)
    _await(settings, asked.values(), KafkaError.NO_ERROR)


def _answer(settings: KafkaSettings, topic: str, future: Any) -> Any:
    """Return the answer about a topic, or None if there is no such topic."""
    try:
        return future.result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        named = KafkaError(reason.code(), f"topic {topic}: {reason.str()}")
        raise _failed(settings, named, _TIMEOUT_S) from error


def _failed(settings: KafkaSettings, error: KafkaError, timeout_s: float) -> SeamlessFlowError:
    """Return the error for a request that was not answered."""
    servers = settings.bootstrap_servers
    if error.code() in REFUSALS:
        return KafkaRefused(servers, error.str())
    return KafkaUnavailable(servers, timeout_s, error.str())


def _found(described: Any, config: Mapping[str, Any]) -> FoundTopic:
    copies = min(len(partition.replicas) for partition in described.partitions)
    values = {name: str(entry.value) for name, entry in config.items()}
    return FoundTopic(described.name, len(described.partitions), copies, values)


def _await(settings: KafkaSettings, futures: Iterable[Any], ignored: int) -> None:
    for future in futures:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != ignored:
                raise _failed(settings, error.args[0], _TIMEOUT_S) from error
