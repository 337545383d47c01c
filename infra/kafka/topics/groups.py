"""Kafka consumer groups as they are on the cluster: their members, and what each reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from seamlessflow.infra.clock import never
from seamlessflow.infra.kafka.admin import AdminCall, CoordinatorRequests
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A process in a group."""

    id: str
    name: str
    """Its static name if it has one, else its client's."""
    host: str
    partitions: frozenset[LogPartition]


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group as its coordinator describes it; a group that never existed has no members."""

    state: str
    members: Sequence[GroupMember]


class GroupLookup:
    """A client that looks up groups."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._requests = CoordinatorRequests(settings)

    def find(self, group: str, limit_s: float) -> FoundGroup:
        """Return a group, by its name without prefix; wait for its coordinator up to `limit_s`.

        Raises `KafkaRefused` if the user may not describe it, and `KafkaUnavailable`.
        """
        name = self._settings.topic_prefix + group
        description = self._answer(
            name,
            lambda admin, s: admin.describe_consumer_groups([name], request_timeout=s),
            limit_s,
        )
        if description is None:
            return FoundGroup("unknown", ())
        members = [self._member(member) for member in description.members]
        return FoundGroup(description.state.name.lower().replace("_", " "), members)

    def committed(self, group: str, limit_s: float) -> Mapping[LogPartition, int]:
        """Return a group's committed offsets; partitions without one are left out.

        Raises what `find` raises.
        """
        prefix = self._settings.topic_prefix
        asked = [ConsumerGroupTopicPartitions(prefix + group)]
        answer = self._answer(
            prefix + group,
            lambda admin, s: admin.list_consumer_group_offsets(asked, request_timeout=s),
            limit_s,
        )
        places = [] if answer is None else answer.topic_partitions
        return {
            (place.topic.removeprefix(prefix), place.partition): place.offset
            for place in places
            if place.error is None and place.offset >= 0
        }

    def _answer(self, name: str, ask: AdminCall, limit_s: float) -> Any:
        """Return the answer about a group, or None if there is no such group."""
        outage = Outage(self._settings, never, limit_s)
        while True:
            try:
                return self._requests.answer(ask, limit_s)
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                # Its text alone may be empty.
                text = f"group {name}: {KafkaError(reason.code()).str()}"
                outage.endure(KafkaError(reason.code(), text))

    def _member(self, member: Any) -> GroupMember:
        prefix = self._settings.topic_prefix
        places = frozenset(
            (place.topic.removeprefix(prefix), place.partition)
            for place in member.assignment.topic_partitions
        )
        name = (member.group_instance_id or member.client_id).removeprefix(prefix)
        return GroupMember(member.member_id, name, member.host.removeprefix("/"), places)
