"""Kafka consumer group members: the present ones, and a process that is one of them.

A process may join a separate group and read nothing there. Others then see it by its client id. Its
membership ends at once when it leaves. If it is killed, it ends once the session time-out has
passed. Called by `seamlessflow/processes/` and `seamlessflow/upgrade/`.
"""

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaException

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.admin import CoordinatorRequests
from seamlessflow.infra.kafka.client import client, consumer_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import Topic

_TIMEOUT_S = 10.0

_POLL_S = 0.5


def client_ids(settings: KafkaSettings, group: str) -> list[str]:
    """Return each member's client id; none for a group that does not exist.

    Raises `KafkaUnavailable` and `KafkaRefused`.
    """
    name = settings.topic_prefix + group
    requests = CoordinatorRequests(settings)
    try:
        description = requests.answer(
            lambda admin, s: admin.describe_consumer_groups([name], request_timeout=s), _TIMEOUT_S
        )
        return [str(member.client_id) for member in description.members]
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() == reason.GROUP_ID_NOT_FOUND:
            return []
        servers = settings.bootstrap_servers
        why = f"group {name}: {reason.str()}"
        if reason.code() in REFUSALS:
            raise KafkaRefused(servers, why) from error
        raise KafkaUnavailable(servers, _TIMEOUT_S, why) from error


class Presence:
    """A member of a group, with a thread that keeps it there."""

    def __init__(self, settings: KafkaSettings, group: str, topic: Topic, client_id: str) -> None:
        """Begin to join; `topic` may be any that exists, because a member must name one."""
        # The session time-out of the protocol consumer is the broker's, 45 s by default.
        options: dict[str, Any] = {
            **consumer_options(settings, client_id, settings.topic_prefix + group),
            "group.protocol": "classic",
            "session.timeout.ms": round(1000 * settings.session_timeout_s),
        }
        self._consumer: Consumer = client(Consumer, options)
        self._consumer.subscribe([settings.topic_prefix + topic.name], on_assign=_read_nothing)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="presence", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group."""
        self._closing.set()
        self._thread.join()
        self._consumer.close()

    def _stay(self) -> None:
        while not self._closing.is_set():
            self._consumer.poll(_POLL_S)  # the client joins again by itself after an outage


def _read_nothing(consumer: Consumer, _: Any) -> None:
    consumer.assign([])
