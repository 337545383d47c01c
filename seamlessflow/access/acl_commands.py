"""Command lines of Kafka's own program that give a user its permissions. Pure."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator

from seamlessflow.infra.kafka.topics.permissions import Permission, Resource

_Rule = tuple[Resource, tuple[str, ...], bool]


def acl_commands(servers: str, user: str, permissions: Iterable[Permission]) -> Iterator[str]:
    """Yield a line for all resources of one kind that have the same operations."""
    operations: defaultdict[tuple[Resource, str, bool], list[str]] = defaultdict(list)
    for permission in permissions:
        operations[permission.resource, permission.name, permission.begins].append(
            permission.operation.value
        )
    named: defaultdict[_Rule, list[str]] = defaultdict(list)
    for (resource, name, begins), several in operations.items():
        named[resource, tuple(several), begins].append(name)
    for (resource, allowed, begins), names in named.items():
        words = ["kafka-acls.sh", "--bootstrap-server", servers]
        words += ["--command-config", "admin.properties", "--add"]
        words += ["--allow-principal", f"User:{user}"]
        words += [word for operation in allowed for word in ("--operation", operation)]
        words += [word for name in names for word in (f"--{resource.value}", name)]
        words += ["--resource-pattern-type", "prefixed"] if begins else []
        yield shlex.join(words)
