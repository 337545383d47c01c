"""Garbage on the manager's topics: it goes on, also after a restart, and buries it once."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.names import CONSUMER_LAG, UNREADABLE
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.topics import CONTROL, ENDED_SESSIONS, FLEET, REQUESTS, SESSIONS, Topic
from tests import http
from tests.builders.garbage import append, append_newer, buried, litter
from tests.builders.own_topics import SMALL
from tests.builders.records import commands, control, fleet, sessions
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import DEADLINE_S, ManagerSystem, manager_system
from tests.waiting import until

pytestmark = pytest.mark.kafka
PARTITION, PARTITIONS = 7, SMALL[SESSIONS.name].partitions
NAMES = [f"s{n}" for n in range(500) if partition_of(f"s{n}", PARTITIONS) == PARTITION]
GROUP = ManagerSection().group
BURIED = (REQUESTS, SESSIONS, ENDED_SESSIONS)


@pytest.fixture
def system(broker: KafkaSettings, tmp_path: Path) -> Iterator[ManagerSystem]:
    """Yield new topics and no manager yet."""
    with manager_system(broker, tmp_path) as made:
        yield made


def serve_turn(system: ManagerSystem, session_id: str) -> None:
    system.open_session(session_id)
    asked = system.generate(system.request(session_id, [message("user", "key 7")]).turn_id)
    system.complete(asked, "code 3")
    assert system.finished(asked.turn_id).status == 200
    assert system.reward_and_close(session_id, 1.0).turns == 1


def litter_all(system: ManagerSystem) -> list[list[int]]:
    """Append garbage to all topics that a manager reads; return it by those in `BURIED`."""
    litter(system.kafka, CONTROL, 0, control.lost())
    litter(system.kafka, FLEET, 0, fleet.heartbeat("w9"))
    return [
        litter(system.kafka, REQUESTS, PARTITION, commands.open_session()),
        litter(system.kafka, SESSIONS, PARTITION, sessions.opened()),
        [
            *litter(system.kafka, ENDED_SESSIONS, PARTITION, sessions.ended()),
            append(system.kafka, ENDED_SESSIONS, PARTITION, encode(sessions.ended(calls=b"cut"))),
        ],
    ]


def test_a_manager_goes_on_after_garbage_and_buries_it_once(system: ManagerSystem) -> None:
    before = litter_all(system)
    first = system.start_manager()
    system.announce("w0", 3)
    serve_turn(system, NAMES[0])
    after = litter_all(system)
    serve_turn(system, NAMES[1])
    first.kill()
    system.start_manager()
    serve_turn(system, NAMES[2])

    for topic, early, late in zip(BURIED, before, after, strict=True):
        assert buried(system.kafka, topic, PARTITION) == early + late
    for topic in (CONTROL, FLEET):
        assert buried(system.kafka, topic, 0) == []


def test_a_manager_shows_its_lag_and_what_it_could_not_read(
    system: ManagerSystem, tmp_path: Path
) -> None:
    litter_all(system)
    system.start_manager(
        SEAMLESSFLOW_TELEMETRY__METRICS_PORT="0", SEAMLESSFLOW_DATA_DIR=str(tmp_path / "data")
    )
    system.announce("w0", 3)
    serve_turn(system, NAMES[0])
    (target,) = (tmp_path / "data" / "metrics").iterdir()
    [entry] = orjson.loads(target.read_bytes())

    def shown() -> set[str]:
        return set(http.get(f"http://{entry['targets'][0]}/metrics").text.splitlines())

    read_whole = (REQUESTS, SESSIONS, FLEET)
    wanted = {f'{UNREADABLE}{{topic="{topic.name}"}} 7.0' for topic in read_whole}
    wanted |= {
        f'{CONSUMER_LAG}{{partition="{PARTITION}",topic="{topic.name}"}} 0.0'
        for topic in (REQUESTS, SESSIONS)
    }
    until(lambda: wanted <= shown(), "the metrics")


@pytest.mark.parametrize("topic", BURIED)
def test_a_manager_stops_at_a_record_of_a_newer_release_and_commits_nothing_behind_it(
    system: ManagerSystem, topic: Topic
) -> None:
    offset = append_newer(system.kafka, topic, PARTITION)
    system.command(commands.close_session(session_id=NAMES[0]))
    for _ in range(2):
        assert system.start_manager().wait(DEADLINE_S) == ExitStatus.LASTING
    reader = Reader(system.kafka, "looking", group=GROUP)
    place = (REQUESTS.name, PARTITION)
    assert reader.committed([place])[place][0] <= offset
    reader.close()
