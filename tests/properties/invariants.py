"""Everything that must hold of a world that has come to its end."""

from collections.abc import Mapping

from consumers.trajectories.sessions.message_keys import Strictness
from infra.kafka.client import Received
from schemas import records as r
from schemas.records import Trajectory
from schemas.topics import REQUESTS, TRAJECTORIES
from tests.properties import oracle
from tests.properties.joins import check_joins, check_start
from tests.properties.matches import check_match
from tests.properties.readings import as_bytes, read, repeated, without_places
from tests.properties.told import Told, told
from tests.properties.told_answers import check_answers
from tests.properties.watch import Watch
from tests.properties.world import World

Made = Mapping[str, Trajectory]
Requests = Mapping[str, r.RequestTurn]


def live(world: World) -> None:
    """Runs the world, with I1 looked after all the way. Raises `AssertionError`."""
    watch = Watch()

    def arrived(received: Received) -> None:
        watch.arrived(received)
        reply = received.record
        if isinstance(reply, r.ReplyDelta | r.ReplyFinished | r.CommandAnswered):
            world.gateway.take(reply)

    world.topics.listeners.append(arrived)
    world.engine_heard.append(watch.asked)
    world.run()


def check(world: World) -> int:
    """I2 to I8; how many sessions there were. Raises `AssertionError`."""
    sessions: dict[str, Told] = {}
    for partition in range(world.partitions):
        sessions |= told(partition, world.events(partition))
    requests = _requests(world)
    made = _made(world, sessions)
    check_answers(world.gateway, sessions)
    record = oracle.Record(world.generations)
    for session_id, one in sessions.items():
        _check_turns(world, one, requests)
        oracle.check(made[session_id], one, requests, record, world.policy.train_inexact)
    _check_readings(world, made)
    return len(sessions)


def _requests(world: World) -> Requests:
    commands = [
        received.record
        for partition in range(world.partitions)
        for received in world.topics.records[REQUESTS.name, partition]
    ]
    return {one.turn_id: one for one in commands if isinstance(one, r.RequestTurn)}


def _made(world: World, sessions: Mapping[str, Told]) -> Made:
    """The trajectories that readers of the topic see: one for each session."""
    found = [received.record for received in world.topics.records[TRAJECTORIES.name, 0]]
    made = {one.session_id: one for one in found if isinstance(one, Trajectory)}
    assert len(found) == len(made), "a trajectory was committed twice"
    assert made.keys() == sessions.keys(), "a session came to no trajectory"
    return made


def _check_turns(world: World, one: Told, requests: Requests) -> None:
    for turn in one.session.turns:
        started = turn.started
        read_to = world.group.decided_at[started.turn_id, started.epoch]
        check_match(turn, one, read_to, requests, world.renderer, world.policy.strictness)
        check_start(turn, one.until(read_to).session, requests)
    check_joins(one, world.events(one.partition), requests)


def _check_readings(world: World, made: Made) -> None:
    """I4 and I7."""
    live = {name: as_bytes(one) for name, one in made.items()}
    strictness: Strictness = world.policy.strictness  # type: ignore[assignment]
    for partition in range(world.partitions):
        events = world.events(partition)
        whole = read(events, partition, strictness)
        assert all(as_bytes(one) == live[name] for name, one in whole.items()), "I7: replayed"
        again = read(repeated(events, world.choices), partition, strictness)
        assert {name: without_places(one) for name, one in again.items()} == {
            name: without_places(one) for name, one in whole.items()
        }, "I4: repeats change a trajectory"
        for number, metadata in set(world.group.progress):
            if number == partition:
                late = read(events, partition, strictness, metadata)
                assert all(as_bytes(one) == live[name] for name, one in late.items()), "I7: rebuilt"
