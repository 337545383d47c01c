"""What the world showed of a manager that gets and loses partitions."""

from collections.abc import Sequence

from infra.rendering import Renderer
from tests.properties.managers import Group, StagedManager
from tests.properties.topics import Topics


def test_events_under_way_for_an_earlier_assignment_are_not_read_for_the_present_one(
    renderers: Sequence[Renderer],
) -> None:
    topics = Topics()
    manager = StagedManager("m", topics, Group({}, {}), renderers[0], lambda: 0)
    manager.assigned(0)
    read(manager)
    read(manager)
    assert manager.owns(0)

    manager.revoked(0)
    manager.assigned(0)
    manager.handle(9)
    read(manager)  # the new claim, before the reader has heard of the new assignment
    too_early = manager.owns(0)
    for _ in range(3):  # a claim of the old epoch comes too late, so it claims again
        read(manager)

    assert (too_early, manager.owns(0)) == (False, True)


def read(manager: StagedManager) -> None:
    """What was sent arrives and is read, behind it what the reader was told meanwhile."""
    manager.handle(9)
    manager.sending.flush()
    manager.poll_sessions(9)
    manager.handle(9)
