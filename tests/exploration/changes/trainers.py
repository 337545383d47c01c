"""Transitions of trainer processes: they begin moves and steps, crash and start again."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from seamlessflow.schemas import records as r
from tests.builders.records import control, fleet
from tests.exploration.actors import TrainerActor
from tests.exploration.changes.readings import readings, without_inert, words
from tests.exploration.rank_roles import RankRoles
from tests.exploration.world import Broken, World, copied_roles


def usual(world: World) -> Iterator[tuple[str, Any]]:
    """Yield what may happen without a fault."""
    for name, actor in world.trainers.items():
        roles = actor.roles
        if roles is None:
            yield f"trainer {name} starts", partial(start, name=name)
            continue
        if actor.orphaned:
            yield f"trainer {name} ends with its trainer", partial(end, name=name)
        for variant in acting(actor):
            yield from _act(world, actor, variant)


def acting(actor: TrainerActor) -> list[TrainerActor]:
    """Return the process as it acts, for each way to read before."""
    return readings(actor, _acts, _next)


def _act(world: World, before: TrainerActor, actor: TrainerActor) -> Iterator[tuple[str, Any]]:
    roles = cast(RankRoles, actor.roles)
    done = f"trainer {actor.worker}{words(before, actor)}"
    # All ranks start again when one is lost.
    if roles.gang.broken_by:
        yield f"{done} ends with its gang", partial(end, name=actor.worker)
    elif actor.move is not None:
        yield f"{done} finishes {actor.move[0]}", partial(_finish, actor)
    elif actor.idle and (due := roles.due()):
        yield f"{done} begins {due}", partial(_begin, actor)
    elif actor.idle and _may_begin(actor):
        yield f"{done} trains", partial(_train, actor)


def _acts(actor: TrainerActor) -> bool:
    return actor.move is not None or (actor.idle and _may_begin(actor)) or _broken(actor)


def _broken(actor: TrainerActor) -> bool:
    return bool(cast(RankRoles, actor.roles).gang.broken_by)


def faults(world: World) -> Iterator[tuple[str, Any]]:
    """Yield the crashes."""
    if world.left.crashes:
        for name, actor in world.trainers.items():
            if actor.roles is not None:
                yield f"fault: trainer {name} crashes", partial(_crash, name=name)


def start(world: World, name: str) -> None:
    """Start a process: it sends a heartbeat and folds all of `control`."""
    lives = world.trainers[name].lives + 1
    roles = copied_roles(world.fresh[name][0])
    roles.incarnation = f"{name}-train-{lives}"
    world.trainers[name] = TrainerActor(worker=name, lives=lives, roles=roles)
    _beat(world, roles)


def end(world: World, name: str) -> None:
    """End a process; the trainer that it was connected to has to end also, when it notices."""
    if not world.trainers[name].orphaned and world.leader.alive:
        world.leader = replace(world.leader, lost=True)
    lives = world.trainers[name].lives
    world.trainers[name] = TrainerActor(worker=name, lives=lives, roles=None)


def _beat(world: World, roles: RankRoles) -> None:
    record = fleet.heartbeat(
        roles.worker,
        "train",
        ("rollout", "train"),
        roles.incarnation,
        at_ms=world.tick(),
        role="train" if roles.held else "none",
    )
    world.to_fleet(record, roles.worker)


def settle(world: World) -> None:
    """Let processes read that can do nothing else.

    To read later would be the same: until then only the rest of what they read would be longer.
    """
    for name, actor in world.trainers.items():
        if actor.control and actor.move is None and not _may_begin(actor):
            _read(world, name)
        if world.trainers[name].control:
            world.trainers[name] = without_inert(world.trainers[name], _next)


def _read(world: World, name: str) -> None:
    """Read all that precede the next thing to begin."""
    actor = world.trainers[name]
    while actor.control and actor.move is None and not _may_begin(actor):
        actor = _next(actor)
    world.trainers[name] = actor


def _next(actor: TrainerActor, topic: str = "control") -> TrainerActor:
    """Return the process after the next record."""
    letter, started = actor.control[0], actor.started
    roles = copied_roles(cast(RankRoles, actor.roles))
    before = _obeyed(roles)
    roles.apply(letter.record)
    epoch = getattr(letter.record, "epoch", letter.epoch)
    if _obeyed(roles) != before and epoch < letter.epoch:
        raise Broken(f"trainer {actor.worker} obeys epoch {epoch} behind a newer claim")
    if isinstance(letter.record, r.StepStarted) and roles.counts(letter.record):
        started = letter.record
    return actor.with_changes(roles=roles, control=actor.control[1:], started=started)


def _obeyed(roles: RankRoles) -> tuple[object, ...]:
    """Return what decisions of the scheduler change in a process."""
    return roles.wanted, roles.leaving, roles.lost, roles.rollout_holds, roles.gang.broken_by


def _may_begin(actor: TrainerActor) -> bool:
    """Return True if a process would begin something once it does nothing."""
    roles, started = actor.roles, actor.started
    if roles is None or roles.gang.broken_by or roles.due():
        return True
    return started is not None and roles.may_start(started)


def _begin(actor: TrainerActor, world: World) -> None:
    name = actor.worker
    roles = copied_roles(cast(RankRoles, actor.roles))
    match roles.due():
        case "rejoin":
            roles.rejoined(f"{name}-train-{actor.lives + 1}")
            world.trainers[name] = actor.with_changes(
                roles=roles, lives=actor.lives + 1, doubted=False
            )
            _beat(world, roles)
        case move:
            world.trainers[name] = actor.with_changes(
                move=(move, roles.assignment), memory=actor.memory or move == "acquire"
            )


def _finish(actor: TrainerActor, world: World) -> None:
    name = actor.worker
    roles = copied_roles(cast(RankRoles, actor.roles))
    kind, assignment = cast(tuple[str, int], actor.move)
    written: r.RoleAcquired | r.RoleReleased | None = None
    origin = {"incarnation": roles.incarnation, "at_ms": world.tick()}
    if kind == "release":
        roles.released()
        written = control.released(name, "train", assignment, **origin)
    elif roles.wanted is not None and roles.wanted.assignment == assignment:
        roles.acquired()
        written = control.acquired(name, "train", assignment, **origin)
    memory = roles.held is not None
    world.trainers[name] = actor.with_changes(roles=roles, move=None, memory=memory)
    if written is not None:
        world.to_control(written, name)
        _beat(world, roles)


def _train(actor: TrainerActor, world: World) -> None:
    name, started = actor.worker, cast(r.StepStarted, actor.started)
    roles = copied_roles(cast(RankRoles, actor.roles))
    roles.note_over(started.gang_epoch, started.step)
    world.trainers[name] = actor.with_changes(roles=roles, started=None, training=started)


def _crash(world: World, name: str) -> None:
    world.left = world.left.less("crashes")
    end(world, name)
