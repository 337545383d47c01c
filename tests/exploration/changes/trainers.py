"""Transitions of trainer processes: they read, begin moves and steps, crash and start again."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from schemas import records as r
from tests.builders.records import control, fleet
from tests.exploration.actors import TrainerActor
from tests.exploration.rank_roles import RankRoles
from tests.exploration.world import Broken, World, copied_roles


def usual(world: World) -> Iterator[tuple[str, Any]]:
    """Yield what may happen without a fault."""
    for name, actor in world.trainers.items():
        roles = actor.roles
        if roles is None:
            yield f"trainer {name} starts", partial(start, name=name)
            continue
        # All ranks start again when one is lost.
        if roles.gang.broken_by and world.bounds.trainers > 1:
            yield f"trainer {name} ends with its gang", partial(end, name=name)
            continue
        if actor.orphaned:
            yield f"trainer {name} ends with its trainer", partial(end, name=name)
        if actor.control:
            record = type(actor.control[0].record).__name__
            yield f"trainer {name} reads {record}", partial(_read, name=name)
        if actor.move is not None:
            yield f"trainer {name} finishes {actor.move[0]}", partial(_finish, name=name)
        if actor.idle and (due := roles.due()):
            yield f"trainer {name} begins {due}", partial(_begin, name=name)
        elif actor.idle and _may_begin(actor):
            yield f"trainer {name} trains", partial(_train, name=name)


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
            _read(world, name, waiting=False)


def _read(world: World, name: str, waiting: bool = True) -> None:
    """Read a record if it is `waiting`, then all that precede the next thing to begin."""
    actor = world.trainers[name]
    while waiting or (actor.control and actor.move is None and not _may_begin(actor)):
        waiting = False
        letter, started = actor.control[0], actor.started
        roles = copied_roles(cast(RankRoles, actor.roles))
        before = _obeyed(roles)
        roles.apply(letter.record)
        epoch = getattr(letter.record, "epoch", letter.epoch)
        if _obeyed(roles) != before and epoch < letter.epoch:
            raise Broken(f"trainer {name} obeys epoch {epoch} behind a newer claim")
        if isinstance(letter.record, r.StepStarted) and roles.counts(letter.record):
            started = letter.record
        actor = actor.with_changes(roles=roles, control=actor.control[1:], started=started)
    world.trainers[name] = actor


def _obeyed(roles: RankRoles) -> tuple[object, ...]:
    """Return what decisions of the scheduler change in a process."""
    return roles.wanted, roles.leaving, roles.lost, roles.rollout_holds, roles.gang.broken_by


def _may_begin(actor: TrainerActor) -> bool:
    """Return True if a process would begin something once it does nothing."""
    roles, started = actor.roles, actor.started
    if roles is None or roles.gang.broken_by or roles.due():
        return True
    return started is not None and roles.may_start(started, started.step)


def _begin(world: World, name: str) -> None:
    actor = world.trainers[name]
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


def _finish(world: World, name: str) -> None:
    actor = world.trainers[name]
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


def _train(world: World, name: str) -> None:
    actor = world.trainers[name]
    world.trainers[name] = actor.with_changes(started=None, training=actor.started)


def _crash(world: World, name: str) -> None:
    world.left = world.left.less("crashes")
    end(world, name)
