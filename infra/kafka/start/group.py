"""Options for a Kafka consumer group's member: the protocol by which it joins.

Kafka 4 has a new group protocol (KIP-848), in which the broker sets the session time-out. On a
cluster without it, a member joins by the classic protocol. It also does so where dead members must
be replaced sooner. Readers that do not join need none of this.
"""

import logging
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import GroupRefused, MemberReplaced, SeamlessFlowError
from seamlessflow.infra.kafka.client import client, client_options
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import Topic

_POLL_S = 0.1
_HEARTBEATS = 4
_UNSUPPORTED = KafkaError.UNSUPPORTED_VERSION
"""Answer from a broker that knows the new protocol but is configured without it."""
_MENDS = {
    KafkaError.INVALID_SESSION_TIMEOUT: "kafka.session_timeout_s (SEAMLESSFLOW_KAFKA__"
    "SESSION_TIMEOUT_S) must be within the brokers' group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "its other members have joined by another protocol or "
    "with other strategies: end them, or use the same kafka.group_protocol "
    "(SEAMLESSFLOW_KAFKA__GROUP_PROTOCOL) for all",
    KafkaError.GROUP_MAX_SIZE_REACHED: "run fewer members, or raise the brokers' group.max.size "
    "or group.consumer.max.size",
}
"""Errors that stay however long a member waits, and what mends them."""
_log = logging.getLogger(__name__)


def membership(
    settings: KafkaSettings, group: str, topic: Topic, instance: str | None, stopping: Stopping
) -> dict[str, Any]:
    """Return the options with which a reader joins `group` to read `topic`; log the protocol.

    Waits for the coordinator's answer as `find_cluster` does. A classic member with an
    `instance`, a name that outlives a restart, gets its partitions back without a rebalance.
    """
    if settings.group_protocol == "auto":
        reason = _missing(settings, group, topic, stopping)
    else:
        reason = "kafka.group_protocol" if settings.group_protocol == "classic" else ""
    if not reason:
        _log.info("group %s: protocol consumer; the session time-out is the broker's", group)
        return {"group.protocol": "consumer"}
    session_ms = int(settings.session_timeout_s * 1000)
    _log.info("group %s: protocol classic (%s); session time-out %d ms", group, reason, session_ms)
    return {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // _HEARTBEATS,
        **({"group.instance.id": settings.topic_prefix + instance} if instance else {}),
    }


def lasting(error: KafkaError, group: str, instance: str) -> SeamlessFlowError | None:
    """Return the error with which a member of `group` must end, or None if it may wait."""
    if _means(error, KafkaError.FENCED_INSTANCE_ID):
        return MemberReplaced(group, instance)
    for code, mend in _MENDS.items():
        if _means(error, code):
            return GroupRefused(group, error.str(), mend)
    return None


def _missing(settings: KafkaSettings, group: str, topic: Topic, stopping: Stopping) -> str:
    """Return why the new protocol cannot be used, or "" if it can.

    It joins a separate group: librdkafka does not say which requests a broker knows, and a member
    of `group` would take partitions. Raises what `Outage.endure` raises: a slow coordinator says
    nothing about the protocol.
    """
    assigned: list[TopicPartition] = []
    lines = _CoordinatorLines()
    probe_group = f"{settings.topic_prefix}{group}.protocol-{uuid.uuid4().hex[:8]}"
    options = {
        **client_options(settings),
        "client.id": f"{group}-protocol",
        "group.id": probe_group,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
        "auto.offset.reset": "latest",
        "debug": "cgrp",
        "logger": lines.logger,
    }
    outage = Outage(settings, stopping)
    probe: Consumer = client(Consumer, options)
    try:
        name = settings.topic_prefix + topic.name
        probe.subscribe([name], on_assign=lambda _, positions: assigned.extend(positions))
        while True:
            message = probe.poll(_POLL_S)
            error = None if message is None else message.error()
            if assigned:
                return ""
            if lines.unsupported or (error is not None and _means(error, _UNSUPPORTED)):
                return "the brokers do not have the protocol consumer"
            if error is None:
                outage.endure_silence(f"no partitions from the coordinator of group {probe_group}")
            elif _means(error, KafkaError.GROUP_AUTHORIZATION_FAILED):
                reason = f"group {probe_group}: {error.str()}"
                outage.endure(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, reason))
            else:
                outage.endure(error)
    finally:
        probe.close()


class _CoordinatorLines(logging.Handler):
    """A consumer's log: it alone shows that a broker does not know the request to join."""

    def __init__(self) -> None:
        super().__init__()
        self.unsupported = False
        self.logger = logging.Logger("group protocol", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Note if the line says that the broker lacks the request."""
        text = KafkaError(KafkaError._UNSUPPORTED_FEATURE).str()
        self.unsupported = self.unsupported or text in record.getMessage()


def _means(error: KafkaError, code: int) -> bool:
    """Return whether the error has this code; for a fatal one, librdkafka gives only the text."""
    text = KafkaError(code).str()
    return error.code() == code or (error.code() == KafkaError._FATAL and text in error.str())
