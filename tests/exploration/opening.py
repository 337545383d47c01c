"""The first world: all processes run, weights are published, and all workers roll out."""

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from tests.exploration.actors import RolloutActor, TrainerActor
from tests.exploration.bounds import Bounds
from tests.exploration.canon import form_of
from tests.exploration.changes import rollouts, schedulers, trainers, training
from tests.exploration.changes.transitions import settle, transitions
from tests.exploration.rank_roles import RankRoles
from tests.exploration.world import World

LONGEST = 1_000
"""Transitions until it is reached."""


def opening(
    bounds: Bounds,
    rollout: type[RolloutRoles] = RolloutRoles,
    trainer: type[RankRoles] = RankRoles,
) -> World:
    """Return the world before the first batch and the first fault, with the code under test."""
    quiet = Bounds(strategy=bounds.strategy, workers=bounds.workers, steps=0)
    world = World(bounds=bounds, left=quiet, rollout_roles=rollout)
    for name in bounds.names:
        world.rollouts[name] = RolloutActor(worker=name, roles=None)
        world.join(name)
        if bounds.trains(name):
            world.trainers[name] = TrainerActor(worker=name, roles=None)
            roles = trainer(name, f"{name}-next", ranks=bounds.trainers)
            world.fresh[name] = (roles, form_of(roles))
    training.publish(world, 0)
    for name in world.trainers:
        trainers.start(world, name)
    for name in world.rollouts:
        rollouts.start(world, name)
    schedulers.claim(world)
    world.bounds = quiet
    for _ in range(LONGEST):
        possible = transitions(world)
        if not possible or possible[0][0].startswith("time"):
            break
        possible[0][1](world)
        settle(world)
    world.bounds, world.left = bounds, bounds
    return world
