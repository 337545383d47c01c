"""Transitions of rollout processes: they begin moves, finish them, crash and start again."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from seamlessflow.producers.rollout.roles.moves import Acquire, Load, Preload, Rejoin, Release
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.schemas import records as r
from tests.builders.records import control, fleet
from tests.exploration.actors import Letter, RolloutActor
from tests.exploration.changes.readings import readings, without_inert, words
from tests.exploration.world import Broken, World


def usual(world: World) -> Iterator[tuple[str, Any]]:
    """Yield what may happen without a fault."""
    for name, actor in world.rollouts.items():
        if actor.roles is None:
            yield f"rollout {name} starts", partial(start, name=name)
            continue
        for variant in acting(actor):
            done, roles = words(actor, variant), cast(RolloutRoles, variant.roles)
            if (move := roles.under_way) is not None:
                yield (
                    f"rollout {name}{done} finishes {type(move).__name__}",
                    partial(_finish, variant),
                )
            elif (move := roles.next_move()) is not None:
                yield f"rollout {name}{done} begins {type(move).__name__}", partial(_begin, variant)


def faults(world: World) -> Iterator[tuple[str, Any]]:
    """Yield the crashes."""
    if world.left.crashes:
        for name, actor in world.rollouts.items():
            if actor.roles is not None:
                yield f"fault: rollout {name} crashes", partial(_crash, name=name)


def start(world: World, name: str) -> None:
    """Start a process: it reads `control` from now on, and `fleet` as compaction left it."""
    lives = world.rollouts[name].lives + 1
    roles = replace(world.newcomers[name], incarnation=f"{name}-rollout-{lives}")
    world.rollouts[name] = RolloutActor(worker=name, lives=lives, roles=roles)
    _beat(world, roles)


def _beat(world: World, roles: RolloutRoles) -> None:
    tags = ("rollout", "train") if world.bounds.trains(roles.worker) else ("rollout",)
    record = fleet.heartbeat(
        roles.worker, "rollout", tags, roles.incarnation, at_ms=world.tick(), state="starting"
    )
    world.to_fleet(record, roles.worker)


def acting(actor: RolloutActor) -> list[RolloutActor]:
    """Return the process as it acts, for each way to read before."""
    return readings(actor, _acts, _read)


def settle(world: World) -> None:
    """Let processes read what changes nothing for them, now and later."""
    for name, actor in world.rollouts.items():
        if actor.control or actor.fleet:
            world.rollouts[name] = without_inert(actor, _read)


def _acts(actor: RolloutActor) -> bool:
    roles = cast(RolloutRoles, actor.roles)
    return roles.busy or roles.next_move() is not None


def _read(actor: RolloutActor, topic: str) -> RolloutActor:
    """Return the process after the next record of a topic."""
    unread: tuple[Letter, ...] = getattr(actor, topic)
    roles, letter = replace(cast(RolloutRoles, actor.roles)), unread[0]
    before = (roles.wanted, roles.lost)
    roles.apply(letter.record)
    epoch = getattr(letter.record, "epoch", letter.epoch)
    if (roles.wanted, roles.lost) != before and epoch < letter.epoch:
        raise Broken(f"rollout {actor.worker} obeys epoch {epoch} behind a newer claim")
    return actor.with_changes(roles=roles, **{topic: unread[1:]})


def _begin(actor: RolloutActor, world: World) -> None:
    name = actor.worker
    roles = replace(cast(RolloutRoles, actor.roles))
    move = roles.next_move()
    if isinstance(move, Rejoin):
        roles.renew(f"{name}-rollout-{actor.lives + 1}")
        world.rollouts[name] = actor.with_changes(roles=roles, lives=actor.lives + 1, doubted=False)
        _beat(world, roles)
        return
    if isinstance(move, Load | Preload):
        # No other process sees when it ends; a crash before leaves what one behind it leaves.
        roles.loaded_weights(move)
    elif move is not None:
        roles.begin(move)
    memory = actor.memory or isinstance(move, Acquire)
    world.rollouts[name] = actor.with_changes(roles=roles, memory=memory)


def _finish(actor: RolloutActor, world: World) -> None:
    name = actor.worker
    roles = replace(cast(RolloutRoles, actor.roles))
    move, memory = roles.under_way, actor.memory
    origin = {"incarnation": roles.incarnation, "at_ms": world.tick()}
    written: r.RoleAcquired | r.RoleReleased | None = None
    match move:
        case Acquire():
            if roles.acquired(move):
                written = control.acquired(
                    name, "rollout", move.assignment, slot=move.slot, **origin
                )
        case Release():
            written = control.released(name, "rollout", move.assignment, **origin)
            roles.released()
            memory = False
    world.rollouts[name] = actor.with_changes(roles=roles, memory=memory)
    if written is not None:
        world.to_control(written, name)


def _crash(world: World, name: str) -> None:
    world.left = world.left.less("crashes")
    world.rollouts[name] = RolloutActor(worker=name, lives=world.rollouts[name].lives, roles=None)
