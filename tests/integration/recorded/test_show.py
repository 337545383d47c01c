"""A session on a real log: as it was, and as it grows."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.show.following import Following
from seamlessflow.recorded.show.observed import ObservedSession
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import FLEET, SESSIONS
from tests.builders.garbage import buried, litter
from tests.builders.records import sessions
from tests.builders.records.content import ids

LIMIT_S = 120
PARTITION = partition_of(sessions.SESSION, SESSIONS.partitions)
GARBAGE = 7
EVENTS: list[Record] = [
    sessions.opened(),
    sessions.started(),
    sessions.dispatched(),
    sessions.completed(ids(3, 4, 5)),
    sessions.rewarded(0.5),
    sessions.closed(),
    sessions.finalized(),
]
OPEN = 4
"""Number of events of a session that is still open."""


@pytest.fixture
def cluster(kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Return the broker, which the environment names, with the topics of sessions."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
    monkeypatch.setenv("COLUMNS", "200")
    create_topics(kafka, [SESSIONS, FLEET])
    return kafka


@pytest.fixture
def producer(cluster: KafkaSettings) -> Iterator[Producer]:
    made = Producer(cluster, "test")
    yield made
    made.close()


def append(producer: Producer, *events: Record) -> None:
    for event in events:
        producer.send(SESSIONS.name, event, key=sessions.SESSION)
    producer.flush(LIMIT_S)


def show(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["show", sessions.SESSION, *arguments])


class GrowingSession:
    """Display that appends the next event of the session whenever it has seen the last one."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.waited = 0
        self.seen: list[tuple[str, bool]] = []

    def show(self, item: Received, folded: Folded | None, observed: ObservedSession) -> None:
        self.seen.append((type(item.record).__name__, folded is not None and folded.accepted))

    def draw(self, observed: ObservedSession) -> None:
        append(self.producer, *EVENTS[len(self.seen) :][:1])

    def waiting(self, what: str) -> None:
        assert f"sessions[{PARTITION}]" in what
        self.waited += 1


def test_a_session_is_shown_as_it_was_at_an_offset(
    cluster: KafkaSettings, producer: Producer
) -> None:
    append(producer, *EVENTS)
    assert "1 turns, open" in show("--at", "2").output
    past = show("--at", "3").output
    assert "turn a, 3 tokens" in past
    assert "reward 0.5" not in past
    assert f"as it was at offset 3; events from offset 0 to 6 of sessions[{PARTITION}]" in past
    assert show("--at", "6").output.splitlines()[:-1] == show().output.splitlines()[:-1]
    assert "--at 7 is behind its last event" in str(show("--at", "7").exception)


def test_a_session_that_is_not_there_yet_is_followed_to_its_end_each_event_once(
    cluster: KafkaSettings, producer: Producer
) -> None:
    litter(cluster, SESSIONS, PARTITION, sessions.opened())
    skipped, shown = Skipped(), GrowingSession(producer)
    observed = ObservedSession(sessions.SESSION, lambda _: "arguments")
    assert Following(cluster, observed, shown, lambda: False).run(LIMIT_S, skipped)
    assert shown.waited == 1
    assert shown.seen == [(type(event).__name__, True) for event in EVENTS]
    assert skipped.garbage == {SESSIONS.name: GARBAGE}
    assert buried(cluster, SESSIONS, PARTITION) == []


def test_a_finalized_session_that_is_followed_is_shown_and_the_command_ends(
    cluster: KafkaSettings, producer: Producer
) -> None:
    append(producer, *EVENTS)
    followed = show("--follow")
    assert followed.exit_code == 0, followed.exception
    lines = followed.output.splitlines()
    assert [line.split()[2] for line in lines] == [type(event).__name__ for event in EVENTS]
    assert "turn a: stop, 3 tokens 3 4 5" in lines[3]


def test_a_session_that_does_not_come_in_time_is_told(cluster: KafkaSettings) -> None:
    missing = show("--follow", "--wait", "0")
    assert f"waiting for session s on sessions[{PARTITION}], up to 0 s" in missing.output
    assert f"no session s on sessions[{PARTITION}] within 0 s" in str(missing.exception)


def test_an_interrupted_follower_leaves_what_it_has_shown(
    cluster: KafkaSettings, producer: Producer
) -> None:
    append(producer, *EVENTS[:OPEN])
    command = [sys.executable, "-m", "seamlessflow", "show", sessions.SESSION, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        for _ in range(OPEN):
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
    assert (rest, process.returncode) == ("not finalized yet\n", 130)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["s", "--at", "1", "--records"], "offsets do not compare"),
        (["s", "--at", "1", "--follow"], "without --at and --tokens"),
        (["s", "--follow", "--tokens"], "without --at and --tokens"),
        (["s", "--wait", "1"], "--wait goes with --follow"),
        (["--at", "1"], "need a SESSION"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], reason: str) -> None:
    refused = CliRunner().invoke(app, ["show", *arguments])
    assert refused.exit_code == 2
    assert reason in " ".join(refused.output.replace("│", " ").split())
