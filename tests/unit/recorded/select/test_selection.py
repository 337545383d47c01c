"""Criteria by which recorded sessions are chosen."""

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Trajectory, VersionSpan
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, opened, started
from tests.builders.trajectories.session_builder import finished, session_after


def made(version: int = 3) -> Trajectory:
    """Return a trajectory of partition 5 with offsets 100 to 106."""
    span = (VersionSpan(start=0, version_min=version, version_max=version),)
    return finished(session_after(started(), dispatched(), completed(ids(7), spans=span)))


@pytest.mark.parametrize(
    "selection",
    [
        SessionSelection(),
        SessionSelection(sessions=frozenset({"s"})),
        SessionSelection(groups=frozenset({"s"})),
        SessionSelection(offsets={5: (106, 107)}),
        SessionSelection(offsets={5: (0, 101)}),
        SessionSelection(since_ms=41, until_ms=41),
        SessionSelection(versions=(2, 3)),
    ],
)
def test_a_session_that_meets_every_criterion_is_chosen(selection: SessionSelection) -> None:
    assert selection.chooses(made())
    assert selection.may_choose(opened(), 5, 100)


@pytest.mark.parametrize(
    "selection",
    [
        SessionSelection(sessions=frozenset({"t"})),
        SessionSelection(groups=frozenset({"g"})),
        SessionSelection(tasks=frozenset({"t"})),
        SessionSelection(offsets={5: (107, 200)}),
        SessionSelection(offsets={5: (0, 100)}),
        SessionSelection(offsets={4: (0, 200)}),
        SessionSelection(since_ms=42),
        SessionSelection(until_ms=-1),
        SessionSelection(versions=(4, 9)),
    ],
)
def test_a_session_that_fails_a_criterion_is_not_chosen(selection: SessionSelection) -> None:
    assert not selection.chooses(made())


def test_a_name_stands_for_all_its_sessions() -> None:
    selection = SessionSelection(sessions=frozenset({"agent"}))
    assert selection.may_choose(opened(session_id="agent~1"), 0, 0)
    assert selection.may_choose(opened(session_id="agent~2"), 0, 0)
    assert not selection.may_choose(opened(session_id="agents"), 0, 0)


def test_only_partitions_that_can_have_chosen_sessions_are_read() -> None:
    assert SessionSelection().partitions(3) == [0, 1, 2]
    by_id = SessionSelection(sessions=frozenset({"agent~1"}))
    assert by_id.partitions(32) == [partition_of("agent", 32)]
    assert SessionSelection(offsets={7: (0, 1)}).partitions(32) == [7]
    with pytest.raises(SettingsRejected, match="no partition 99 of sessions, only 0 to 31"):
        SessionSelection(offsets={7: (0, 1), 99: (0, 60)}).partitions(32)
