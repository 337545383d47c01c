"""The transitions of a world: all that may happen next, each as a name and a change.

A change is applied to a copy. Names of faults begin with `fault`.
"""

from collections.abc import Callable, Iterator

from tests.exploration.changes import rollouts, schedulers, trainers, training
from tests.exploration.world import World

Change = Callable[[World], None]
Transition = tuple[str, Change]


def transitions(world: World) -> list[Transition]:
    """Return what may happen next."""
    usual = [
        *schedulers.usual(world),
        *rollouts.usual(world),
        *trainers.usual(world),
        *training.usual(world),
    ]
    # Without a fault time passes only when nothing else happens.
    return [*usual, *_faults(world), *schedulers.waits(world, idle=not usual)]


def _faults(world: World) -> Iterator[Transition]:
    yield from rollouts.faults(world)
    yield from trainers.faults(world)
    yield from training.faults(world)
    yield from schedulers.faults(world)


def settle(world: World) -> None:
    """Let happen at once what could as well happen later."""
    rollouts.settle(world)
    trainers.settle(world)
    training.settle(world)
    schedulers.settle(world)
