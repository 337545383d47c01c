"""Kafka users' permissions (ACLs): what each allows, and their creation on a cluster.

The permissions that each kind of process needs are in `seamlessflow/access.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from seamlessflow.infra.errors import KafkaRefused, SettingsRejected
from seamlessflow.infra.kafka.client import client, client_options
from seamlessflow.infra.kafka.outage import REFUSALS
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.settings import KafkaSettings

_TIMEOUT_S = 60.0


class Resource(Enum):
    """Kinds of things that a permission is about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(Enum):
    """Operations that a permission allows; reading and writing include describing."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True)
class Permission:
    """A permitted operation on one resource, or on all whose names begin with `name`."""

    resource: Resource
    name: str
    operation: Operation
    begins: bool = False
    """True if `name` is only the beginning of resource names."""


def grant(settings: KafkaSettings, user: str, permissions: Iterable[Permission]) -> None:
    """Give permissions to a user, from any host; its other permissions stay.

    `settings` are those of an administrator. Raises what `find_cluster` raises, and
    `SettingsRejected` for a cluster without an authorizer.
    """
    find_cluster(settings)
    admin: AdminClient = client(AdminClient, client_options(settings))
    asked = admin.create_acls(
        [_binding(user, permission) for permission in permissions], request_timeout=_TIMEOUT_S
    )
    for future in asked.values():
        try:
            future.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in REFUSALS:
                raise KafkaRefused(settings.bootstrap_servers, reason.str()) from error
            raise SettingsRejected("topics acls", reason.str()) from error


def _binding(user: str, permission: Permission) -> AclBinding:
    return AclBinding(
        ResourceType[permission.resource.name],
        permission.name,
        ResourcePatternType.PREFIXED if permission.begins else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[permission.operation.name],
        AclPermissionType.ALLOW,
    )
