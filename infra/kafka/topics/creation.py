"""Creation of the topics that a cluster lacks, and the prefixes that a user may name for them."""

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, SettingsRejected, TopicMissing
from seamlessflow.infra.kafka.client import client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS, passes
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import found_topics, partition_counts
from seamlessflow.infra.kafka.topics.partitions import least_insync, slots_asked, topic_counts
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import Topic

_TIMEOUT_S = 60.0
_COPIES = 3
_SHOWN_S = 30.0
_LOOK_S = 0.05
_COPIED = (
    *("cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas"),
    *("retention.bytes", "retention.ms", "segment.ms", "min.cleanable.dirty.ratio"),
)
_log = logging.getLogger(__name__)

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[._-]")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Wishes for new topics; by default they follow the contract and have up to three copies."""

    replication: int | None = None
    """Each partition's copies; -1: the cluster's own default."""
    min_insync: int | None = None
    """Copies that must have a record before it is acknowledged; by default all but one."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """A topic's partitions, by its name without prefix."""
    retention_ms: Mapping[str, int] = field(default_factory=dict)
    """A topic's retention, by its name without prefix; -1: for ever."""
    workers: int = 0
    """Workers that will roll out: `prompts` gets at least a partition for each."""


def check_prefix(option: str, prefix: str) -> None:
    """Raise `SettingsRejected` for a prefix without a name, or without a separator at its end."""
    if not _PREFIX.fullmatch(prefix):
        reason = "is no prefix, such as again. with letters or digits and a dot, - or _ at its end"
        raise SettingsRejected(option, f"{prefix!r} {reason}")


def create_topics(
    settings: KafkaSettings,
    topics: Iterable[Topic],
    options: TopicOptions | None = None,
    stopping: Stopping = never,
) -> list[str]:
    """Create missing topics and their dead-letter topics; return the names of those created.

    Returns when clients can use them. Waits for Kafka as `find_cluster` does. Raises what
    `topic_counts` and `slots_asked` raise.
    """
    options = options or TopicOptions()
    specs = list(topics)
    brokers = find_cluster(settings, stopping=stopping).brokers
    existing = partition_counts(settings)
    slots = slots_asked(options.workers, existing, settings.topic_prefix)
    counts = topic_counts(specs, {**slots, **options.partitions}, existing, settings.topic_prefix)
    copies = options.replication or min(_COPIES, brokers)
    wanted = [
        topic
        for spec in specs
        for topic in _new_topics(settings, spec, counts[spec.name], copies, options)
    ]
    return _create_missing(settings, wanted, brokers)


def create_dead_letters(settings: KafkaSettings, topic: Topic, partitions: int) -> None:
    """Create only the dead-letter topic, if it is missing, for a topic that is elsewhere."""
    brokers = find_cluster(settings).brokers
    (_, letters) = _new_topics(settings, topic, partitions, min(_COPIES, brokers), TopicOptions())
    _create_missing(settings, [letters], brokers)


def _create_missing(settings: KafkaSettings, wanted: Iterable[Any], brokers: int) -> list[str]:
    existing = partition_counts(settings)
    missing = [topic for topic in wanted if topic.topic not in existing]
    if missing:
        _create(settings, missing, brokers)
    return [topic.topic for topic in missing]


def _create(settings: KafkaSettings, topics: Sequence[Any], brokers: int) -> None:
    """Create the topics, and return once clients can use them."""
    admin = client(AdminClient, client_options(settings))
    begun_s = time.monotonic()
    asked = topics
    while asked:
        futures = admin.create_topics(list(asked), operation_timeout=_TIMEOUT_S)
        waited_s = time.monotonic() - begun_s
        most = brokers if waited_s < _TIMEOUT_S else 0
        left_s = settings.wait_s - waited_s
        asked = [
            topic
            for topic in asked
            if not _created(settings, topic, futures[topic.topic], most, left_s)
        ]
        time.sleep(_LOOK_S if asked else 0)
    _await_shown(settings, {topic.topic for topic in topics})


def create_copy(settings: KafkaSettings, source: str, target: str) -> int:
    """Create a topic like another one, if it is missing; return its partition count.

    Both names are without prefix. Raises `TopicMissing` if there is no `source`.
    """
    old = settings.topic_prefix + source
    new = settings.topic_prefix + target
    existing = partition_counts(settings)
    if new in existing:
        return existing[new]
    like = found_topics(settings, [old]).get(old)
    if like is None:
        raise TopicMissing(old, settings.bootstrap_servers)
    config = {name: like.config[name] for name in _COPIED}
    made = NewTopic(new, like.partitions, like.replication, config=config)
    _create(settings, [made], find_cluster(settings).brokers)
    return like.partitions


def _new_topics(
    settings: KafkaSettings, spec: Topic, partitions: int, copies: int, options: TopicOptions
) -> list[Any]:
    insync = options.min_insync or (least_insync(copies) if copies > 0 else None)
    common = {
        "max.message.bytes": str(spec.max_record_bytes),
        **({"min.insync.replicas": str(insync)} if insync else {}),
    }
    config = {
        **common,
        "retention.ms": str(options.retention_ms.get(spec.name, spec.retention_ms)),
        "cleanup.policy": spec.cleanup,
        **({"segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"} if spec.compacted else {}),
        "message.timestamp.type": "CreateTime",
    }
    letters = {**common, "retention.ms": "-1"}
    return [
        NewTopic(settings.topic_prefix + name, partitions, copies, config=conf)
        for name, conf in ((spec.name, config), (spec.dead_letters, letters))
    ]


def _created(settings: KafkaSettings, topic: Any, future: Any, brokers: int, left_s: float) -> bool:
    """Return True if the topic is there now, False if the request must be repeated.

    `brokers`: how many the cluster has; 0 if there is no time to wait for a fenced one.
    `left_s`: how long to go on waiting for a Kafka that does not answer.
    """
    try:
        future.result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        # Another process may have created it since it was found missing.
        if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        if is_fenced_broker(reason.code(), topic.replication_factor, brokers):
            return False
        what = f"{topic.topic}: {reason.str()}"
        if passes(reason):
            if left_s > 0:
                return False
            raise KafkaUnavailable(settings.bootstrap_servers, settings.wait_s, what) from error
        if reason.code() in REFUSALS:
            raise KafkaRefused(settings.bootstrap_servers, what) from error
        raise SettingsRejected("topics create", what) from error
    return True


def is_fenced_broker(code: int, copies: int, brokers: int) -> bool:
    """Return whether a refusal passes: there are enough brokers, but one may be fenced.

    Kafka fences a broker that sent no heartbeat for some seconds, such as one on a busy machine.
    """
    return code == KafkaError.INVALID_REPLICATION_FACTOR and max(copies, 1) <= brokers


def _await_shown(settings: KafkaSettings, names: set[str]) -> None:
    """Return once a broker shows the topics: brokers learn of them after they are made."""
    deadline = time.monotonic() + _SHOWN_S
    while hidden := names - partition_counts(settings).keys():
        if time.monotonic() > deadline:
            _log.warning("made, but not shown to this user yet: %s", ", ".join(sorted(hidden)))
            return
        time.sleep(_LOOK_S)
