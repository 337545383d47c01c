"""Kafka consumer groups as they are on the cluster: their members, and what each reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.client import Partition, client, client_options
from infra.kafka.outage import Outage, never
from infra.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A process in a group."""

    id: str
    name: str
    """Its static name if it has one, else its client's."""
    host: str
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group as its coordinator describes it; one that never was has no members."""

    state: str
    members: Sequence[GroupMember]


class GroupLookup:
    """A client that looks up groups."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: AdminClient = client(AdminClient, client_options(settings))

    def find(self, group: str, limit_s: float) -> FoundGroup:
        """Return a group, by its name without prefix; wait for its coordinator up to `limit_s`.

        Raises `KafkaRefused` if the user may not describe it, and `KafkaUnavailable`.
        """
        name = self._settings.topic_prefix + group
        outage = Outage(self._settings, never, limit_s)
        while True:
            asked = self._admin.describe_consumer_groups([name], request_timeout=limit_s)
            try:
                found = asked[name].result()
                break
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return FoundGroup("unknown", ())
                # Its text alone may be empty.
                text = f"group {name}: {KafkaError(reason.code()).str()}"
                outage.endure(KafkaError(reason.code(), text))
        members = [self._member(member) for member in found.members]
        return FoundGroup(found.state.name.lower().replace("_", " "), members)

    def _member(self, member: Any) -> GroupMember:
        prefix = self._settings.topic_prefix
        places = frozenset(
            (place.topic.removeprefix(prefix), place.partition)
            for place in member.assignment.topic_partitions
        )
        name = (member.group_instance_id or member.client_id).removeprefix(prefix)
        return GroupMember(member.member_id, name, member.host.removeprefix("/"), places)
