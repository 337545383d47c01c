"""The properties that hold in every world, and the goal that every world leads on to.

A process that is counted as lost although it lives is left out: no event can take the device from
it, and it frees it as soon as it reads of its loss.
"""

from seamlessflow.schemas import records as r
from tests.exploration.actors import RolloutActor, TrainerActor
from tests.exploration.changes import rollouts, trainers
from tests.exploration.world import Broken, World


def check(world: World) -> None:
    """Check one world."""
    for name, trainer in world.trainers.items():
        _one_role(world.rollouts[name], trainer)
    _one_reader_of_a_slot(world)
    _held_as_recorded(world)
    _whole_gangs(world)


def at_goal(world: World) -> bool:
    """Return True if all steps are done, no process has anything to do, and all roll out."""
    return (
        world.leader.step == world.bounds.steps
        and len(world.schedulers) == 1
        and not any(scheduler.control or scheduler.unread_fleet for scheduler in world.schedulers)
        and not any(
            trainer.roles is None or trainers.acting(trainer) for trainer in world.trainers.values()
        )
        and all(_rolls_out(rollout, world) for rollout in world.rollouts.values())
    )


def _rolls_out(actor: RolloutActor, world: World) -> bool:
    trains = world.bounds.strategy == "disaggregated" and actor.worker != "a"
    held = actor.roles is not None and actor.roles.held is not None
    return (held or trains) and actor.roles is not None and not rollouts.acting(actor)


def _one_role(rollout: RolloutActor, trainer: TrainerActor) -> None:
    if rollout.doubted or trainer.doubted:
        return
    if rollout.memory and trainer.memory:
        raise Broken(f"both processes of worker {rollout.worker} have its device")


def _one_reader_of_a_slot(world: World) -> None:
    readers: dict[int | None, str] = {}
    for name, actor in world.rollouts.items():
        if actor.roles is None or actor.roles.held is None or actor.doubted:
            continue
        slot = actor.roles.held.slot
        if slot in readers:
            raise Broken(f"workers {readers[slot]} and {name} both read slot {slot}")
        readers[slot] = name


def _held_as_recorded(world: World) -> None:
    """Check that a role which the log says is held is held, unless its process died since."""
    for name, worker in world.log.state.workers.items():
        assignment = worker.assignment
        if assignment is None or assignment.lapsed or assignment.acquired_ms is None:
            continue
        actor: RolloutActor | TrainerActor
        actor = world.rollouts[name] if assignment.role == "rollout" else world.trainers[name]
        if actor.roles is None or actor.roles.incarnation != assignment.incarnation:
            continue
        if not actor.memory and not actor.doubted:
            raise Broken(f"{assignment.role} of worker {name} is recorded as held and is not")


def _whole_gangs(world: World) -> None:
    """Check that a started step has a gang whose members all hold training, unless they died."""
    started = world.log.started
    if not isinstance(started, r.StepStarted):
        return
    for name in started.workers:
        actor, worker = world.trainers[name], world.log.state.workers.get(name)
        assignment = worker.assignment if worker is not None else None
        if actor.roles is None or actor.doubted or assignment is None:
            continue
        if actor.roles.incarnation != assignment.incarnation or assignment.role != "train":
            continue
        held = actor.roles.held
        if held is None or held.gang_epoch != started.gang_epoch:
            raise Broken(f"step {started.step} was started without trainer {name}")
