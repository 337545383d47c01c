"""Transitions of schedulers: they read, decide, are replaced, and see time pass."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from scheduler.decisions.contact import Contact
from scheduler.decisions.decide import Outgoing, Rules, View, decide
from scheduler.decisions.strategies import registry
from scheduler.settings import RunSection, SchedulerSection, SchedulerSettings
from scheduler.state import fleet as fleet_fold
from scheduler.state.fleet import Fleet
from schemas import records as r
from schemas.topics import CONTROL
from tests.builders.records import fleet
from tests.exploration.actors import SchedulerActor
from tests.exploration.bounds import Bounds
from tests.exploration.canon import PAUSE_MS
from tests.exploration.world import World, heartbeats

GANG_S, ASSIGNMENT_S = 10**5, 10**7
"""Deadlines that only waits for them pass."""
WAITS = {
    "a while": PAUSE_MS,
    "past the deadline of training": 2 * 1000 * GANG_S,
    "past all deadlines": 2 * 1000 * ASSIGNMENT_S,
}
SILENT_MS = -(10**18)
_REPORTS = r.PlanWarning | r.ProgressStalled
"""Records that no participant acts on."""
_due: dict[tuple[int, int, int], tuple[object, bool]] = {}


@cache
def rules(bounds: Bounds) -> Rules:
    """Return the scheduler's rules: a gang of all workers that can train."""
    limits = SchedulerSection(
        policy=bounds.strategy,
        gang_size=bounds.trainers,
        gang_timeout_s=GANG_S,
        assignment_timeout_s=ASSIGNMENT_S,
        heartbeat_timeout_s=10**12,
        min_dwell_s=1,
    )
    settings = SchedulerSettings(run=RunSection(steps=100), scheduler=limits)
    return Rules(settings, registry.named(bounds.strategy), slots=bounds.workers + 1)


def usual(world: World) -> Iterator[tuple[str, Any]]:
    """Yield what may happen without a fault."""
    for place, actor in enumerate(world.schedulers):
        name = f"scheduler {actor.epoch}"
        if actor.control:
            record = type(actor.control[0].record).__name__
            yield f"{name} reads {record}", partial(_read_control, place=place)
        if actor.unread_fleet:
            yield f"{name} reads WorkerHeartbeat", partial(_read_fleet, place=place)
        if _acts(actor) and (_is_due(world, actor) or _snapshot_epoch(world) < actor.epoch):
            yield f"{name} decides", partial(_decide, place=place)
    for worker, process in _dead(world):
        if _heard(world, worker, process):
            yield f"{process} {worker} is missed", partial(silence, worker=worker, process=process)
    for worker, process in _doubted(world):
        yield (
            f"{process} {worker} is heard again",
            partial(_beat_again, worker=worker, process=process),
        )


def faults(world: World) -> Iterator[tuple[str, Any]]:
    """Yield new schedulers, and processes that are counted as lost although they live."""
    if world.left.takeovers:
        yield "fault: a scheduler claims the next epoch", _take_over
    if not world.left.silences:
        return
    for worker, process in (*_alive(world),):
        if _heard(world, worker, process):
            yield (
                f"fault: {process} {worker} is silent",
                partial(_doubt, worker=worker, process=process),
            )


def waits(world: World, idle: bool) -> Iterator[tuple[str, Any]]:
    """Yield waits after which a scheduler decides something that it does not decide now."""
    if not idle and not world.left.deadlines:
        return
    for name, wait_ms in WAITS.items():
        if any(
            _acts(actor) and not _is_due(world, actor) and _is_due(world, actor, wait_ms)
            for actor in world.schedulers
        ):
            prefix = "" if idle else "fault: "
            yield f"{prefix}time passes: {name}", partial(_wait, wait_ms=wait_ms, free=idle)
            return


def claim(world: World) -> None:
    """Let a scheduler read both topics to their ends and claim the next epoch."""
    epoch = world.log.state.epoch + 1
    for record in [*heartbeats(world)]:
        if _lives(world, record):
            world.compacted["WorkerHeartbeat/" + record.worker + "/" + record.process] = replace(
                record, at_ms=world.clock
            )
    known = Fleet(policies=frozenset({"policy"}))
    for record in heartbeats(world):
        known = fleet_fold.apply(known, record, world.clock)
    name = f"scheduler-{epoch}"
    actor = SchedulerActor(name=name, epoch=epoch, log=world.log, fleet=known)
    world.schedulers = (*world.schedulers, actor)
    world.to_control(r.SchedulerClaimed(epoch=epoch, scheduler=name, at_ms=world.tick()), name)


def _acts(actor: SchedulerActor) -> bool:
    """Return True if the scheduler has read its claim back and all that it wrote after it."""
    return actor.complete and actor.log.state.epoch == actor.epoch


def _decided(world: World, actor: SchedulerActor, now_ms: int) -> list[Outgoing]:
    view = View(state=actor.log.state, fleet=actor.fleet, contact=Contact(0, now_ms))
    decided = decide(view, rules(world.bounds), now_ms)
    return [(topic, record) for topic, record in decided if not isinstance(record, _REPORTS)]


def _is_due(world: World, actor: SchedulerActor, wait_ms: int = 0) -> bool:
    """Return True if the scheduler would write something, now or after a wait."""
    now_ms = world.clock + wait_ms
    key = (id(actor.log), id(actor.fleet), now_ms // 1000)
    known = _due.get(key)
    if known is None:
        if len(_due) > 200_000:
            _due.clear()
        known = _due[key] = ((actor.log, actor.fleet), bool(_decided(world, actor, now_ms)))
    return known[1]


def _snapshot_epoch(world: World) -> int:
    found = world.compacted.get("SchedulerSnapshot")
    return found.epoch if isinstance(found, r.SchedulerSnapshot) else -1


def _replace(world: World, place: int, actor: SchedulerActor) -> None:
    world.schedulers = (*world.schedulers[:place], actor, *world.schedulers[place + 1 :])


def _read_control(world: World, place: int) -> None:
    """Read a record, and those behind it as long as nothing is decided in between."""
    actor = world.schedulers[place]
    able = True
    while able or (actor.control and not (_acts(actor) and _is_due(world, actor))):
        able = False
        letter, unread = actor.control[0], actor.control[1:]
        if letter.behind.state.epoch > actor.epoch:
            # A newer claim ends it.
            world.schedulers = (*world.schedulers[:place], *world.schedulers[place + 1 :])
            return
        actor = replace(actor, log=letter.behind, control=unread)
    _replace(world, place, actor)


def _read_fleet(world: World, place: int) -> None:
    actor = world.schedulers[place]
    letter, unread = actor.unread_fleet[0], actor.unread_fleet[1:]
    known = fleet_fold.apply(actor.fleet, letter.record, world.clock)
    _replace(world, place, replace(actor, fleet=known, unread_fleet=unread))


def _decide(world: World, place: int) -> None:
    actor = world.schedulers[place]
    for topic, record in _decided(world, actor, world.tick()):
        if topic == CONTROL.name:
            world.to_control(record, actor.name)
        else:
            world.to_fleet(record, actor.name)
    if _snapshot_epoch(world) < actor.epoch:
        snapshot = fleet.snapshot(epoch=actor.epoch, state=b"", at_ms=world.tick())
        world.to_fleet(snapshot, actor.name)


def _take_over(world: World) -> None:
    world.left = world.left.less("takeovers")
    claim(world)


def _wait(world: World, wait_ms: int, free: bool) -> None:
    if not free:
        world.left = world.left.less("deadlines")
    world.clock += wait_ms
    # Who lives sends heartbeats meanwhile.
    for record in [*heartbeats(world)]:
        if _lives(world, record):
            world.compacted["WorkerHeartbeat/" + record.worker + "/" + record.process] = replace(
                record, at_ms=world.clock
            )


def silence(world: World, worker: str, process: str) -> None:
    """Let the schedulers miss the heartbeats of a process."""
    world.schedulers = tuple(_missing(one, worker, process) for one in world.schedulers)


def _missing(actor: SchedulerActor, worker: str, process: str) -> SchedulerActor:
    latest = actor.fleet.heartbeats.get((worker, process))
    if latest is None:
        return actor
    changed = {**actor.fleet.heartbeats, (worker, process): replace(latest, seen_ms=SILENT_MS)}
    return replace(actor, fleet=replace(actor.fleet, heartbeats=changed))


def _doubt(world: World, worker: str, process: str) -> None:
    world.left = world.left.less("silences")
    silence(world, worker, process)
    if process == "rollout":
        world.rollouts[worker] = world.rollouts[worker].with_changes(doubted=True)
    else:
        world.trainers[worker] = world.trainers[worker].with_changes(doubted=True)


def _beat_again(world: World, worker: str, process: str) -> None:
    record = world.compacted[f"WorkerHeartbeat/{worker}/{process}"]
    if isinstance(record, r.WorkerHeartbeat):
        world.to_fleet(replace(record, at_ms=world.tick()), worker)


def _processes(world: World) -> Iterator[tuple[str, str, str | None]]:
    """Yield worker, process and incarnation, which is None while it is dead."""
    for name, rollout in world.rollouts.items():
        yield name, "rollout", rollout.roles.incarnation if rollout.roles else None
    for name, trainer in world.trainers.items():
        yield name, "train", trainer.roles.incarnation if trainer.roles else None


def _alive(world: World) -> Iterator[tuple[str, str]]:
    return ((worker, kind) for worker, kind, life in _processes(world) if life is not None)


def _dead(world: World) -> Iterator[tuple[str, str]]:
    return ((worker, kind) for worker, kind, life in _processes(world) if life is None)


def _lives(world: World, record: r.WorkerHeartbeat) -> bool:
    return (record.worker, record.process, record.incarnation) in _processes(world)


def _heard(world: World, worker: str, process: str) -> bool:
    """Return True if a scheduler has read its last heartbeat and counts it as alive."""
    last = world.compacted[f"WorkerHeartbeat/{worker}/{process}"]
    return any(
        latest is not None
        and latest.seen_ms >= 0
        and isinstance(last, r.WorkerHeartbeat)
        and latest.heartbeat.incarnation == last.incarnation
        for one in world.schedulers
        for latest in [one.fleet.heartbeats.get((worker, process))]
    )


def _doubted(world: World) -> Iterator[tuple[str, str]]:
    """Yield live processes that a scheduler misses, none of whose heartbeats it has yet to read."""
    for worker, process, life in _processes(world):
        for one in world.schedulers:
            latest = one.fleet.heartbeats.get((worker, process))
            unread = any(
                isinstance(letter.record, r.WorkerHeartbeat)
                and (letter.record.worker, letter.record.process) == (worker, process)
                for letter in one.unread_fleet
            )
            if latest is None or latest.seen_ms >= 0 or unread:
                continue
            member = one.log.state.workers.get(worker)
            joined = member is not None and process in member.processes
            if latest.heartbeat.incarnation == life and not joined:
                yield worker, process
                break
