"""Transitions of the leader of training: it announces a batch, and ends the step that its gang
trains.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.builders.records import control, fleet
from tests.exploration.world import World

LEADER = "leader"


def usual(world: World) -> Iterator[tuple[str, Any]]:
    """Yield what may happen without a fault."""
    leader = world.leader
    if leader.announced:
        if gang := _gang(world):
            yield f"step {leader.step} ends", partial(_complete, gang=gang)
    elif leader.step < world.bounds.steps and world.trainers[world.first_rank].roles is not None:
        yield f"batch {leader.step} is ready", _announce


def publish(world: World, version: int) -> None:
    """Publish a version."""
    now_ms = world.tick()
    place = {"directory": f"v{version}", "manifest_sha256": "", "at_ms": now_ms}
    world.to_control(control.published(version, **place), LEADER)
    world.to_fleet(fleet.weights(version=version, step=version, **place), LEADER)


def _gang(world: World) -> tuple[str, ...]:
    """Return the members of a gang that trains the step with all its members, if there is one."""
    for actor in world.trainers.values():
        start = actor.training
        if start is None or start.step != world.leader.step:
            continue
        if all(_trains(world, name, start.gang_epoch) for name in start.workers):
            return start.workers
    return ()


def _trains(world: World, name: str, gang_epoch: int) -> bool:
    training = world.trainers[name].training
    return training is not None and training.gang_epoch == gang_epoch


def _announce(world: World) -> None:
    world.to_control(control.batch_ready(world.leader.step, at_ms=world.tick()), LEADER)
    world.leader = replace(world.leader, announced=True)


def _complete(world: World, gang: tuple[str, ...]) -> None:
    step = world.leader.step
    publish(world, step + 1)
    world.to_control(control.completed(step, at_ms=world.tick()), LEADER)
    for name in gang:
        world.trainers[name] = world.trainers[name].with_changes(training=None)
    world.leader = replace(world.leader, step=step + 1, announced=False)
