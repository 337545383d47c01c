"""Forks of a recorded session on a real broker: from its middle, played back, and divergent."""

from collections.abc import Iterator

import pytest
import xxhash

from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.fork.copying import RecordedOn, forked_prefix
from seamlessflow.recorded.select.refold import Refold
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


@pytest.fixture(scope="module")
def source(served: ManagerSystem) -> tuple[Session, r.GenerateTurn]:
    """Return a recorded session, and what the worker got for the turn behind its tool result."""
    served.open_session("recorded")
    first = served.request("recorded", ASKED)
    called = calling(first.turn_id)
    served.complete(served.generate(first.turn_id), "x", message=called)
    served.finished(first.turn_id)
    second = served.request("recorded", [*ASKED, called, result(first.turn_id)])
    asked = served.generate(second.turn_id)
    served.complete(asked, "y")
    served.finished(second.turn_id)
    served.reward_and_close("recorded", 1.0)
    return folded(served, "recorded"), asked


def folded(served: ManagerSystem, session_id: str) -> Session:
    number = partition_of(session_id, SMALL["sessions"].partitions)
    refold = Refold(LoggedPartition(number))
    sessions = [
        refold.apply(item.record, item.offset)
        for item in read_partitions(served.kafka, [(SESSIONS.name, number)])
    ]
    (session,) = [
        candidate
        for candidate in sessions
        if candidate is not None and candidate.session_id == session_id
    ]
    return session


def fork_of(source: Session, mode: str) -> r.ForkedPrefix:
    number = partition_of(source.session_id, SMALL["sessions"].partitions)
    return forked_prefix(source, list(source.turns)[-1], RecordedOn(number), mode)


def test_a_fork_samples_behind_the_exact_recorded_prompt(
    served: ManagerSystem, source: tuple[Session, r.GenerateTurn]
) -> None:
    recorded, asked = source
    fork = fork_of(recorded, "middle")
    served.open_session("middle", fork=fork)
    again = served.generate(served.request("middle", history(of_session(fork, "middle"))).turn_id)
    sampled = served.complete(again, "z")
    served.finished(again.turn_id)
    made = served.reward_and_close("middle", 0.5)

    assert again.prompt_ids == asked.prompt_ids
    assert made.fork == fork.origin
    assert made.fork is not None and made.fork.offset > 0
    assert made.loss_mask.count(1) == len(sampled) // 4
    assert made.tokens == asked.prompt_ids + sampled
    assert (made.turns, made.masked_tokens) == (1, {})


def test_a_playback_goes_on_under_another_manager_and_samples_from_the_chosen_turn(
    served: ManagerSystem, source: tuple[Session, r.GenerateTurn]
) -> None:
    recorded, asked = source
    served.open_session("played", fork=fork_of(recorded, "playback"))
    first = served.request("played", ASKED)
    copied = served.answer(first.command_id).turn_id
    assert copied is not None
    assert served.finished(copied).message == calling(copied)

    served.processes[0].kill()
    served.start_manager()
    retried = served.request("played", ASKED, retry_count=1)
    assert served.answer(retried.command_id).turn_id == copied
    second = served.request("played", [*ASKED, calling(copied), result(copied)])
    again = served.generate(second.turn_id)
    served.complete(again, "z")
    served.finished(second.turn_id)

    assert xxhash.xxh3_128_digest(again.prompt_ids) == asked.prompt_hash
    assert served.reward_and_close("played", 1.0).turns == 1


def test_a_request_that_was_not_recorded_ends_the_fork_with_409(
    served: ManagerSystem, source: tuple[Session, r.GenerateTurn]
) -> None:
    served.open_session("diverged", fork=fork_of(source[0], "playback"))
    other = served.request("diverged", [ASKED[0], message("user", "b")])
    answer = served.answer(other.command_id)
    made = served.expect(
        "trajectories", r.Trajectory, lambda record: record.session_id == "diverged"
    )

    assert (answer.status, answer.reason) == (409, "fork_diverged")
    assert "message 2 was" in answer.detail
    assert (made.status, made.reason, made.cause) == ("aborted", "fork_diverged", "environment")
