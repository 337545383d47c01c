"""Kafka permissions that each kind of process needs, and commands that grant them. Pure.

`tests/e2e/runs/test_access.py` runs every kind of process as a user with only these permissions.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from seamlessflow.infra.kafka.topics.permissions import Operation, Permission, Resource
from seamlessflow.schemas.topics import (
    ARMS,
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TASKS,
    TOPICS,
    TRAJECTORIES,
    Topic,
)

GATEWAY = "gateway"
MANAGER = "manager"
ROLLOUT = "rollout"
AGENTS = "agents"
REWARDS = "rewards"
SCHEDULER = "scheduler"
TRAINER = "trainer"
TRAINING = "training"
OBSERVER = "observer"

RUN_GROUP = "run"
"""Consumer group whose only member is a run's command."""
_LOOKUPS = ("bounds", "reading")
"""Consumer groups named by clients that look up partition bounds, or that read a whole topic."""

_Rule = tuple[Resource, tuple[str, ...], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Topics and consumer groups that one kind of process uses; their names lack the prefix."""

    reads: tuple[Topic, ...] = ()
    writes: tuple[Topic, ...] = ()
    buries: tuple[Topic, ...] = ()
    """Topics whose garbage becomes dead letters, which it reads to write none twice."""
    describes: tuple[Topic, ...] = ()
    """Topics of which it only asks how many partitions there are."""
    inspects: tuple[Topic, ...] = ()
    """Topics whose records, dead letters and configuration it reads."""
    joins: tuple[str, ...] = ()
    """Consumer groups that it joins."""
    looks_up: tuple[str, ...] = ()
    """Consumer groups whose offsets it reads without being a member."""
    names: tuple[str, ...] = ()
    """Prefixes for the group names that its readers must have even if they join no group."""
    transactions: str = ""
    """Prefix of its transactional ids; empty if it has none."""


def needs(manager_group: str, agents_group: str, rewards_group: str) -> Mapping[str, Access]:
    """Return what each kind of process may use; the arguments are the settings' consumer groups."""
    return {
        GATEWAY: Access(
            reads=(REPLIES,), writes=(REQUESTS, FLEET), buries=(REPLIES,), names=("gateway-",)
        ),
        MANAGER: Access(
            reads=(REQUESTS, SESSIONS, ENDED_SESSIONS, CONTROL, FLEET),
            writes=(SESSIONS, PROMPTS, REPLIES, TRAJECTORIES, ENDED_SESSIONS, FLEET),
            buries=(REQUESTS, SESSIONS, ENDED_SESSIONS),
            joins=(manager_group,),
            names=("manager-",),
            transactions="trajectories-",
        ),
        ROLLOUT: Access(
            reads=(PROMPTS, CONTROL, FLEET),
            writes=(SESSIONS, CONTROL, FLEET),
            buries=(PROMPTS,),
            names=("rollout-",),
        ),
        **_of_user_code(agents_group, rewards_group),
        SCHEDULER: Access(
            reads=(CONTROL, FLEET, ARMS),
            writes=(CONTROL, FLEET, ARMS, TASKS),
            buries=(CONTROL, FLEET, ARMS),
            describes=(PROMPTS, REQUESTS),
            looks_up=(manager_group, agents_group),
            names=("scheduler-",),
        ),
        TRAINER: Access(
            reads=(TRAJECTORIES, CONTROL),
            writes=(CONTROL, FLEET),
            buries=(TRAJECTORIES,),
            names=("trainer-",),
        ),
        TRAINING: Access(reads=(CONTROL, FLEET), writes=(CONTROL, FLEET), names=("trainer-",)),
        OBSERVER: Access(
            inspects=tuple(TOPICS.values()),
            joins=(RUN_GROUP,),
            looks_up=(manager_group, agents_group, rewards_group),
            names=("launcher", "console"),
        ),
    }


def _of_user_code(agents_group: str, rewards_group: str) -> Mapping[str, Access]:
    """Return what the processes that run agents and judges may use."""
    return {
        AGENTS: Access(
            reads=(TASKS, CONTROL, FLEET),
            writes=(CONTROL,),
            buries=(TASKS,),
            joins=(agents_group,),
            names=("agents-",),
        ),
        REWARDS: Access(
            reads=(SESSIONS, TASKS),
            writes=(REQUESTS, CONTROL),
            joins=(rewards_group,),
            names=("reward-worker",),
        ),
    }


def permissions(access: Access, prefix: str) -> list[Permission]:
    """Return the permissions for an access; `prefix` is `kafka.topic_prefix`."""
    return list(dict.fromkeys([*_of_topics(access, prefix), *_of_groups(access, prefix)]))


def acl_commands(servers: str, user: str, permissions: Iterable[Permission]) -> Iterator[str]:
    """Yield `kafka-acls.sh` lines, one for all resources of a kind with the same operations."""
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


def _of_topics(access: Access, prefix: str) -> Iterator[Permission]:
    letters = [topic.dead_letters for topic in (*access.buries, *access.inspects)]
    named = {
        Operation.READ: [topic.name for topic in (*access.reads, *access.inspects)] + letters,
        Operation.WRITE: [topic.name for topic in access.writes]
        + [topic.dead_letters for topic in access.buries],
        Operation.DESCRIBE: [topic.name for topic in access.describes],
        Operation.DESCRIBE_CONFIGS: [
            name for topic in access.inspects for name in (topic.name, topic.dead_letters)
        ],
    }
    for operation, names in named.items():
        for name in names:
            yield Permission(Resource.TOPIC, prefix + name, operation)


def _of_groups(access: Access, prefix: str) -> Iterator[Permission]:
    for group in access.joins:
        yield Permission(Resource.GROUP, prefix + group, Operation.READ)
        # A probe group shows which group protocol the cluster has (`infra/kafka/start/group.py`).
        yield Permission(Resource.GROUP, f"{prefix}{group}.protocol-", Operation.READ, True)
    for group in (*access.looks_up, *_LOOKUPS):
        yield Permission(Resource.GROUP, prefix + group, Operation.DESCRIBE)
    for name in access.names:
        yield Permission(Resource.GROUP, prefix + name, Operation.DESCRIBE, True)
    if access.transactions:
        beginning = prefix + access.transactions
        for operation in (Operation.WRITE, Operation.DESCRIBE):
            yield Permission(Resource.TRANSACTIONAL_ID, beginning, operation, True)
