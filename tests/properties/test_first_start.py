"""A manager that finds a long log and no progress: bounded transactions, each trajectory once."""

from collections import Counter
from collections.abc import Sequence

import pytest

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.topics import ENDED_SESSIONS, SESSIONS, TRAJECTORIES
from tests.builders.records.sessions import closed, finalized, opened
from tests.properties.managed_partition import ManagedPartition
from tests.properties.simulation.managers import SteppedManager

COUNT = 9


class OneByOne(SteppedManager):
    """A manager whose transactions have one trajectory."""

    settings = ManagerSection(commit_interval_s=1e-9, transaction_records=1)


def long_log(renderer: Renderer) -> ManagedPartition:
    """Return a partition with finalized sessions and nothing committed."""
    made = ManagedPartition(renderer, OneByOne)
    for number in range(COUNT):
        kinds = (opened, closed, finalized)
        for event in (kind(session_id=f"s{number}", epoch=1) for kind in kinds):
            made.topics.append(SESSIONS.name, 0, event)
    made.manager.alive = False
    made.manager.group.committed.clear()
    return made


def started(partition: ManagedPartition) -> SteppedManager:
    """Start another manager, which has read nothing yet."""
    manager = partition.begun()
    manager.assigned(0)
    manager.handle(9)
    manager.readers.answer()
    manager.handle(9)
    return manager


def read(manager: SteppedManager, rounds: int, most: int = 3) -> None:
    for _ in range(rounds):
        manager.poll_sessions(most)
        manager.handle(9)
        manager.sending.flush()
        manager.look()
        manager.finish_commit()
        manager.handle(9)


def emitted(partition: ManagedPartition) -> list[str]:
    records = partition.topics.records[TRAJECTORIES.name, 0]
    return [received.record.session_id for received in records]  # type: ignore[attr-defined]


def test_a_first_start_commits_on_its_way(renderers: Sequence[Renderer]) -> None:
    partition = long_log(renderers[0])
    manager = started(partition)

    read(manager, 5)

    assert not manager.owns(0)
    assert 1 < len(emitted(partition)) < COUNT


@pytest.mark.parametrize("rounds", range(0, 12, 2))
@pytest.mark.parametrize("forgotten", [True, False])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    rounds: int, forgotten: bool, renderers: Sequence[Renderer]
) -> None:
    partition = long_log(renderers[0])
    read(started(partition), rounds)
    if forgotten:  # what the last transaction wrote may not be seen yet
        partition.topics.records[ENDED_SESSIONS.name, 0].clear()

    later = started(partition)
    read(later, 30)

    assert later.owns(0)
    assert Counter(emitted(partition)) == {f"s{number}": 1 for number in range(COUNT)}
