"""Transitions of heartbeats: processes that are missed, wrongly or not, and heard again."""

from collections.abc import Iterator
from dataclasses import replace

from seamlessflow.schemas import records as r
from tests.exploration.actors import SchedulerActor
from tests.exploration.world import World

SILENT_MS = -(10**18)


def silence(world: World, worker: str, process: str) -> None:
    """Let the schedulers miss the heartbeats of a process."""
    world.schedulers = tuple(_missing(scheduler, worker, process) for scheduler in world.schedulers)


def _missing(actor: SchedulerActor, worker: str, process: str) -> SchedulerActor:
    latest = actor.fleet.heartbeats.get((worker, process))
    if latest is None:
        return actor
    changed = {**actor.fleet.heartbeats, (worker, process): replace(latest, seen_ms=SILENT_MS)}
    return replace(actor, fleet=replace(actor.fleet, heartbeats=changed))


def doubt(world: World, worker: str, process: str) -> None:
    world.left = world.left.less("silences")
    silence(world, worker, process)
    if process == "rollout":
        world.rollouts[worker] = world.rollouts[worker].with_changes(doubted=True)
    else:
        world.trainers[worker] = world.trainers[worker].with_changes(doubted=True)


def beat_again(world: World, worker: str, process: str) -> None:
    record = world.compacted[f"WorkerHeartbeat/{worker}/{process}"]
    if isinstance(record, r.WorkerHeartbeat):
        world.to_fleet(replace(record, at_ms=world.tick()), worker)


def processes(world: World) -> Iterator[tuple[str, str, str | None]]:
    """Yield worker, process and incarnation, which is None while it is dead."""
    for name, rollout in world.rollouts.items():
        yield name, "rollout", rollout.roles.incarnation if rollout.roles else None
    for name, trainer in world.trainers.items():
        yield name, "train", trainer.roles.incarnation if trainer.roles else None


def alive(world: World) -> Iterator[tuple[str, str]]:
    return ((worker, kind) for worker, kind, life in processes(world) if life is not None)


def dead(world: World) -> Iterator[tuple[str, str]]:
    return ((worker, kind) for worker, kind, life in processes(world) if life is None)


def lives(world: World, record: r.WorkerHeartbeat) -> bool:
    return (record.worker, record.process, record.incarnation) in processes(world)


def heard(world: World, worker: str, process: str) -> bool:
    """Return True if a scheduler has read its last heartbeat and counts it as alive."""
    last = world.compacted[f"WorkerHeartbeat/{worker}/{process}"]
    return any(
        latest is not None
        and latest.seen_ms >= 0
        and isinstance(last, r.WorkerHeartbeat)
        and latest.heartbeat.incarnation == last.incarnation
        for scheduler in world.schedulers
        for latest in [scheduler.fleet.heartbeats.get((worker, process))]
    )


def doubted(world: World) -> Iterator[tuple[str, str]]:
    """Yield live processes that a scheduler misses, none of whose heartbeats it has yet to read."""
    for worker, process, life in processes(world):
        for scheduler in world.schedulers:
            latest = scheduler.fleet.heartbeats.get((worker, process))
            unread = any(
                isinstance(letter.record, r.WorkerHeartbeat)
                and (letter.record.worker, letter.record.process) == (worker, process)
                for letter in scheduler.unread_fleet
            )
            if latest is None or latest.seen_ms >= 0 or unread:
                continue
            member = scheduler.log.state.workers.get(worker)
            joined = member is not None and process in member.processes
            if latest.heartbeat.incarnation == life and not joined:
                yield worker, process
                break
