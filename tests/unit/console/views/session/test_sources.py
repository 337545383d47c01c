"""A session's records are found among those of others, up to a cut."""

from pathlib import Path

from seamlessflow.console.log.moment import parse_moment
from seamlessflow.console.views.session.reasons import SessionSources, explained
from seamlessflow.console.views.session.sources import session_events, session_sources
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.builders.console.explained_sessions import (
    ENDED,
    OPENED,
    READY,
    SESSION,
    WHOLE,
    committed,
    kinds,
    trajectory_of,
)
from tests.builders.console.memory_log import history_of, raw_item
from tests.builders.records import control, sessions

STEP_MS = 10


def on_log(
    topic: str, records: list[tuple[str | None, Record]], partition: int, begin_ms: int
) -> list[Received]:
    """Return records with their keys as they stand on a partition from this time on."""
    return [
        raw_item(topic, partition, offset, begin_ms + STEP_MS * offset, encode(record), key)
        for offset, (key, record) in enumerate(records)
    ]


def a_log() -> list[Received]:
    """Return a log with the session, another one of its partition, and one of another."""
    claim: tuple[str | None, Record] = (None, sessions.claimed())
    other = sessions.opened(session_id="other", group_id="g")
    events = [claim, ("other", other), *((SESSION, event) for event in WHOLE)]
    trajectory = trajectory_of(WHOLE)
    of_control = [control.joined(), READY, committed(3)]
    return [
        *on_log(SESSIONS.name, events, 1, 0),
        *on_log(SESSIONS.name, [claim, ("third", sessions.opened(session_id="third"))], 0, 0),
        *on_log(TRAJECTORIES.name, [("g", trajectory)], 4, 200),
        *on_log(CONTROL.name, [(None, record) for record in of_control], 0, 300),
    ]


def sources(at: str = "", trained: Path | None = None) -> SessionSources:
    history, _ = history_of(a_log())
    return session_sources(history, history.outline(parse_moment(at)).cut, SESSION, trained)


def test_its_events_and_claims_are_found_and_no_others() -> None:
    named = [type(item.record).__name__ for item in sources().events]
    assert named == ["PartitionClaimed", *(type(event).__name__ for event in WHOLE)]
    assert {item.partition for item in sources().events} == {1}


def test_the_events_of_a_session_that_a_request_named_have_its_whole_id_as_key() -> None:
    names = ("mine~1", "mine~2")
    events = [(name, sessions.opened(session_id=name, name="mine")) for name in names]
    history, _ = history_of(on_log(SESSIONS.name, [(None, sessions.claimed()), *events], 0, 0))
    cut = history.outline(None).cut
    records = [item.record for item in session_events(history, cut, "mine~2")]
    assert records == [sessions.claimed(), events[1][1]]


def test_its_trajectory_and_the_records_of_groups_and_steps_are_found() -> None:
    made = sources()
    assert made.trajectory is not None
    assert (made.trajectory.partition, made.trajectory.offset) == (4, 0)
    assert [item.record for item in made.control] == [READY, committed(3)]


def test_what_is_found_explains_its_tokens(tmp_path: Path) -> None:
    tokens = explained(sources(trained=tmp_path))
    assert tokens is not None
    assert [str(kind) for kind in kinds(tokens)] == [*["prompt"] * 2, *["trained"] * 3]


def test_at_a_moment_nothing_behind_it_is_found() -> None:
    completed = 2 + WHOLE.index(ENDED[0]) - 1
    made = sources(f"sessions:1:{completed}")
    assert made.trajectory is None and not made.control
    tokens = explained(made)
    assert tokens is not None
    assert [str(kind) for kind in kinds(tokens)][2:] == ["under_way"] * 3


def test_a_session_that_is_not_on_the_log_has_no_records() -> None:
    history, _ = history_of(on_log(SESSIONS.name, [("t", OPENED)], 0, 0))
    made = session_sources(history, history.outline(None).cut, "nowhere")
    assert (made.events, made.trajectory, made.control) == ([], None, [])
