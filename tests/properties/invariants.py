"""The invariants I1 to I8, checked for a simulation."""

from collections.abc import Mapping

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import REQUESTS, TRAJECTORIES
from tests.properties.oracle import trajectories
from tests.properties.oracle.answers import check_answers
from tests.properties.oracle.joins import check_join, check_start
from tests.properties.oracle.matches import check_match
from tests.properties.oracle.replays import as_bytes, read, repeated, without_places
from tests.properties.oracle.sessions import LoggedSession, logged_sessions
from tests.properties.oracle.stops import check_stop
from tests.properties.oracle.watch import Watch
from tests.properties.simulation.simulation import Simulation

Made = Mapping[str, Trajectory]
Requests = Mapping[str, r.RequestTurn]


def live(simulation: Simulation) -> None:
    """Run the simulation and check I1 at each record. Raises `AssertionError`."""
    watch = Watch()

    def arrived(received: Received) -> None:
        watch.arrived(received)
        reply = received.record
        if isinstance(reply, r.ReplyDelta | r.ReplyFinished | r.CommandAnswered):
            simulation.gateway.take(reply)

    simulation.topics.listeners.append(arrived)
    simulation.engine_heard.append(watch.asked)
    simulation.run()


def check(simulation: Simulation) -> int:
    """Check I2 to I8 at the end; return the number of sessions. Raises `AssertionError`."""
    sessions: dict[str, LoggedSession] = {}
    for partition in range(simulation.partitions):
        sessions |= logged_sessions(partition, simulation.events(partition))
    requests = _requests(simulation)
    made = _made(simulation, sessions)
    check_answers(simulation.gateway, sessions)
    record = trajectories.Record(simulation.generations)
    for session_id, logged in sessions.items():
        _check_turns(simulation, logged, requests)
        trajectories.check(made[session_id], logged, requests, record, simulation.policy)
    _check_readings(simulation, made)
    return len(sessions)


def _requests(simulation: Simulation) -> Requests:
    commands = [
        received.record
        for partition in range(simulation.partitions)
        for received in simulation.topics.records[REQUESTS.name, partition]
    ]
    return {command.turn_id: command for command in commands if isinstance(command, r.RequestTurn)}


def _made(simulation: Simulation, sessions: Mapping[str, LoggedSession]) -> Made:
    """Return the trajectories on the topic; check that each session has one."""
    records = [received.record for received in simulation.topics.records[TRAJECTORIES.name, 0]]
    made = {record.session_id: record for record in records if isinstance(record, Trajectory)}
    assert len(records) == len(made), "a trajectory was committed twice"
    assert made.keys() == sessions.keys(), "a session came to no trajectory"
    return made


def _check_turns(simulation: Simulation, logged: LoggedSession, requests: Requests) -> None:
    decided_at = simulation.group.decided_at
    for turn in logged.session.turns:
        started = turn.started
        read_to = decided_at[started.command_id, started.epoch]
        check_match(
            turn, logged, read_to, requests, simulation.renderer, simulation.policy.strictness
        )
        check_start(turn, logged.until(read_to).session, requests)
        check_stop(turn)
    log = simulation.events(logged.partition)
    for joined in logged.joins:
        decision = joined.command_id, joined.epoch
        read_to = decided_at[decision]
        silence_ms = simulation.group.silence_ended_ms[decision]
        check_join(joined, logged.until(read_to).session, log[:read_to], requests, silence_ms)


def _check_readings(simulation: Simulation, made: Made) -> None:
    """Check I4 and I7: the same log read again gives the same trajectories."""
    live = {name: as_bytes(trajectory) for name, trajectory in made.items()}
    strictness: Strictness = simulation.policy.strictness  # type: ignore[assignment]
    for partition in range(simulation.partitions):
        events = simulation.events(partition)
        whole = read(events, partition, strictness)
        assert all(as_bytes(trajectory) == live[name] for name, trajectory in whole.items()), (
            "I7: replayed"
        )
        again = read(repeated(events, simulation.choices), partition, strictness)
        assert {name: without_places(trajectory) for name, trajectory in again.items()} == {
            name: without_places(trajectory) for name, trajectory in whole.items()
        }, "I4: repeats change a trajectory"
        for number, metadata in set(simulation.group.progress):
            if number == partition:
                late = read(events, partition, strictness, metadata)
                assert all(
                    as_bytes(trajectory) == live[name] for name, trajectory in late.items()
                ), "I7: rebuilt"
