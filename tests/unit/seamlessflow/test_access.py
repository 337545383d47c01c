"""Permissions of each kind of process, and the commands that give them."""

import re

from seamlessflow.access import (
    MANAGER,
    OBSERVER,
    REWARDS,
    ROLLOUT,
    TRAINING,
    acl_commands,
    needs,
    permissions,
)
from seamlessflow.infra.kafka.topics.permissions import Operation, Permission, Resource
from seamlessflow.schemas.topics import CONTROL, TOPICS, TRAJECTORIES
from tests.paths import ROOT

ACCESS = needs("managers", "runners", "judging")
NAMES = {
    *("gateway", "manager", "rollout process", "trainer", "training process"),
    *("scheduler", "agents", "reward worker", "command line"),
}
"""Names of the kinds in the table of topics; "the same" are those that write."""


def table() -> dict[str, tuple[set[str], set[str]]]:
    """Return the writers and readers of each topic in docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|([^|]*)\|([^|]*)\|$", page, re.M)
    topics = {}
    for topic, writers, readers in rows:
        written = {name for name in NAMES if name in writers}
        same = written if "the same" in readers else set()
        topics[topic] = (written, {name for name in NAMES if name in readers} | same)
    return topics


def kind(name: str) -> str:
    kinds = {"rollout process": ROLLOUT, "training process": TRAINING, "command line": OBSERVER}
    kinds["reward worker"] = REWARDS
    return kinds.get(name, name)


def test_each_kind_writes_the_topics_that_the_architecture_says() -> None:
    written = {
        topic: {process for process, access in ACCESS.items() if TOPICS[topic] in access.writes}
        for topic in TOPICS
    }
    assert written == {topic: {kind(n) for n in writers} for topic, (writers, _) in table().items()}


def test_each_kind_reads_the_topics_that_the_architecture_says() -> None:
    for topic, (_, readers) in table().items():
        read = {process for process, access in ACCESS.items() if TOPICS[topic] in access.reads}
        assert read == {kind(name) for name in readers} - {OBSERVER}, topic


def test_only_the_manager_writes_trajectories_and_by_transactions() -> None:
    assert [process for process, access in ACCESS.items() if TRAJECTORIES in access.writes] == [
        MANAGER
    ]
    assert [process for process, access in ACCESS.items() if access.transactions] == [MANAGER]


def test_the_observer_writes_nothing() -> None:
    allowed = {permission.operation for permission in permissions(ACCESS[OBSERVER], "")}
    assert Operation.WRITE not in allowed


def test_every_name_has_the_prefix_of_the_topics() -> None:
    for access in ACCESS.values():
        assert all(
            permission.name.startswith("shared.") for permission in permissions(access, "shared.")
        )


def test_a_command_names_all_topics_with_the_same_operations() -> None:
    wanted = [
        Permission(Resource.TOPIC, "control", Operation.READ),
        Permission(Resource.TOPIC, "fleet", Operation.READ),
        Permission(Resource.TOPIC, CONTROL.dead_letters, Operation.WRITE),
        Permission(Resource.GROUP, "reader-", Operation.DESCRIBE, begins=True),
    ]
    start = "kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties --add "
    assert list(acl_commands("kafka:9093", "me", wanted)) == [
        start + "--allow-principal User:me --operation Read --topic control --topic fleet",
        start + "--allow-principal User:me --operation Write --topic control.dlq",
        start + "--allow-principal User:me --operation Describe --group reader- "
        "--resource-pattern-type prefixed",
    ]
