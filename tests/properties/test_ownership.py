"""Managers that get and lose partitions; cases that the simulation once found."""

from collections.abc import Sequence

from seamlessflow.infra.rendering.renderer import Renderer
from tests.properties.choices import Choices
from tests.properties.simulation.managers import Group, SteppedManager, become_owner, read_back
from tests.properties.simulation.simulation import Simulation
from tests.properties.simulation.topics import Topics


def test_events_under_way_for_an_earlier_assignment_are_not_read_for_the_present_one(
    renderers: Sequence[Renderer],
) -> None:
    manager = SteppedManager("m", Topics(), Group(), renderers[0], lambda: 0)
    become_owner(manager)
    manager.revoked(0)
    manager.assigned(0)
    manager.handle(9)
    read_back(manager)  # the new claim, before the reader has heard of the new assignment
    too_early = manager.owns(0)
    become_owner(manager)

    assert not too_early


def test_a_turn_that_waits_for_a_worker_is_placed_by_the_owner_of_its_partition_alone(
    renderers: Sequence[Renderer],
) -> None:
    simulation = Simulation(Choices(b""), renderers[0], 1)
    manager, (agent,) = simulation.group.owners[0], simulation.agents
    for worker in simulation.workers:
        worker.leave(100)
    manager.hear(99)
    for _ in range(5):
        agent.act(simulation.choices)  # opens its session, asks, then waits
        manager.poll_requests(9)
        read_back(manager)
    manager.revoked(0)
    manager.assigned(0)
    manager.handle(9)
    manager.poll_sessions(0)  # the reader hears of it
    manager.handle(9)
    simulation.workers[0].acquire(101)
    manager.hear(99)
    sent = manager.sending.sent

    manager.poll_sessions(3)  # all but the new claim
    manager.handle(9)
    manager.look()
    too_early = manager.sending.sent > sent
    become_owner(manager)
    manager.sending.flush()

    assert not too_early
    assert [type(event).__name__ for event in simulation.events(0)][-1] == "TurnDispatched"
