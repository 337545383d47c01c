"""Transitions of the trainer, a process apart from the training processes: it announces a batch,
and ends the step that its gang trains. It crashes, ends when one of them is lost, and starts again.
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
    if not leader.alive:
        yield "the trainer starts", start
        return
    if leader.lost:
        yield "the trainer ends with its gang", _end
    if leader.announced:
        if gang := _gang(world):
            yield f"step {leader.step} ends", partial(_complete, gang=gang)
    elif leader.step < world.bounds.steps:
        yield f"batch {leader.step} is ready", _announce


def faults(world: World) -> Iterator[tuple[str, Any]]:
    """Yield the crash of the trainer; the training processes notice it at any later time."""
    if world.left.crashes and world.leader.alive:
        yield "fault: the trainer crashes", _crash


def settle(world: World) -> None:
    """Let the trainer start again at once where only its next act tells that it has.

    While it is dead, training processes may end that it would have been connected to; the only one
    does not, without a further crash.
    """
    if not (world.leader.alive or world.left.crashes) and world.bounds.trainers == 1:
        start(world)


def publish(world: World, version: int) -> None:
    """Publish a version."""
    now_ms = world.tick()
    place = {"directory": f"v{version}", "manifest_sha256": "", "at_ms": now_ms}
    world.to_control(control.published(version, **place), LEADER)
    world.to_fleet(fleet.weights(version=version, step=version, **place), LEADER)


def start(world: World) -> None:
    """Start again: it executes the step under way once more, with all training processes anew."""
    world.leader = replace(world.leader, alive=True)


def _end(world: World) -> None:
    """End; those that were connected to it have to end also, when they notice."""
    world.leader = replace(world.leader, alive=False, announced=False, lost=False)
    for name, actor in world.trainers.items():
        if actor.roles is not None:
            world.trainers[name] = actor.with_changes(orphaned=True)


def _crash(world: World) -> None:
    world.left = world.left.less("crashes")
    _end(world)


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
    actor = world.trainers[name]
    training = actor.training
    return training is not None and training.gang_epoch == gang_epoch and not actor.orphaned


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
