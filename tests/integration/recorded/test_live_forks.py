"""Beginnings of sessions that go on from ended ones, copied from a real log."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.beginnings import NoBeginning
from seamlessflow.recorded.fork.live import RunBeginnings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.forks import history, of_session
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.own_topics import SMALL
from tests.builders.records.content import message
from tests.builders.trajectories.conversation import calling, result
from tests.builders.trajectories.manager_system import ManagerSystem, manager_system

pytestmark = pytest.mark.kafka
ASKED = [message("system", "be brief"), message("user", "a")]


@pytest.fixture(scope="module")
def served(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ManagerSystem]:
    with manager_system(broker, tmp_path_factory.mktemp("tokenizer")) as made:
        made.start_manager()
        made.announce("w0", 3)
        yield made


def played(served: ManagerSystem, session_id: str) -> r.Trajectory:
    """Return a session of two turns that has ended."""
    served.open_session(session_id)
    first = served.request(session_id, ASKED)
    called = calling(first.turn_id)
    served.complete(served.generate(first.turn_id), "x", message=called)
    served.finished(first.turn_id)
    second = served.request(session_id, [*ASKED, called, result(first.turn_id)])
    served.complete(served.generate(second.turn_id), "y")
    served.finished(second.turn_id)
    return served.reward_and_close(session_id, 1.0)


def place_of(made: r.Trajectory, turn: int = 2) -> r.ParentPlace:
    return r.ParentPlace(
        session_id=made.session_id, turn=turn, first_offset=made.first_offset, parent_return=0.75
    )


def test_a_session_goes_on_from_an_ended_one_with_its_return(served: ManagerSystem) -> None:
    parent = played(served, "parent")
    copies = RunBeginnings(served.kafka)
    prefix = copies.prefix(place_of(parent), "middle")
    assert copies.prefix(place_of(parent), "middle") is prefix

    served.open_session("child", fork=prefix)
    again = served.generate(served.request("child", history(of_session(prefix, "child"))).turn_id)
    sampled = served.complete(again, "z")
    served.finished(again.turn_id)
    made = served.reward_and_close("child", 0.5)

    assert made.fork is not None
    assert (made.fork.session_id, made.fork.parent_return) == ("parent", 0.75)
    assert made.tokens[: 4 * prefix.length] == parent.tokens[: 4 * prefix.length]
    assert made.loss_mask.count(1) == len(sampled) // 4


def test_a_place_that_no_session_has_is_refused(served: ManagerSystem) -> None:
    parent = played(served, "short")
    copies = RunBeginnings(served.kafka)
    with pytest.raises(NoBeginning, match="it has no such turn"):
        copies.prefix(place_of(parent, turn=3), "middle")
    later = replace(place_of(parent), first_offset=parent.last_offset)
    with pytest.raises(NoBeginning, match="its events are not on the log"):
        copies.prefix(later, "playback")


def test_a_session_that_retention_removed_is_refused_with_the_reason(
    served: ManagerSystem,
) -> None:
    parent = played(served, "trimmed")
    number = partition_of("trimmed", SMALL["sessions"].partitions)
    name = served.kafka.topic_prefix + SESSIONS.name
    removed = TopicPartition(name, number, parent.last_offset)
    admin = AdminClient({"bootstrap.servers": served.kafka.bootstrap_servers})
    admin.delete_records([removed])[removed].result(30)
    with pytest.raises(NoBeginning, match="retention removed its events"):
        RunBeginnings(served.kafka).prefix(place_of(parent), "middle")
