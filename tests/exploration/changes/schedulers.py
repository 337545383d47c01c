"""Transitions of schedulers: they read, decide, are replaced, and see time pass."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from seamlessflow.scheduler.decisions.decide import Outgoing, Rules, View, decide
from seamlessflow.scheduler.decisions.membership import Contact
from seamlessflow.scheduler.decisions.strategies import registry
from seamlessflow.scheduler.settings import RunSection, SchedulerSection, SchedulerSettings
from seamlessflow.scheduler.state import fleet as fleet_fold
from seamlessflow.scheduler.state.fleet import Fleet
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import CONTROL, fleet_key
from tests.builders.records import fleet
from tests.exploration.actors import SchedulerActor
from tests.exploration.bounds import Bounds
from tests.exploration.canon import PAUSE_MS
from tests.exploration.changes.silences import (
    alive,
    beat_again,
    dead,
    doubt,
    doubted,
    heard,
    lives,
    silence,
)
from tests.exploration.world import World, heartbeats

GANG_S, ASSIGNMENT_S = 10**5, 10**7
"""Deadlines that only waits for them pass."""
WAITS = {
    "a while": PAUSE_MS,
    "past the deadline of training": 2 * 1000 * GANG_S,
    "past all deadlines": 2 * 1000 * ASSIGNMENT_S,
}
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
        if _acts(actor) and _has_due(world, actor):
            yield f"{name} decides", partial(_decide, place=place)
    for worker, process in dead(world):
        if heard(world, worker, process):
            yield f"{process} {worker} is missed", partial(silence, worker=worker, process=process)
    for worker, process in doubted(world):
        yield (
            f"{process} {worker} is heard again",
            partial(beat_again, worker=worker, process=process),
        )


def faults(world: World) -> Iterator[tuple[str, Any]]:
    """Yield new schedulers, and processes that are counted as lost although they live."""
    if world.left.takeovers:
        yield "fault: a scheduler claims the next epoch", _take_over
    if not world.left.silences:
        return
    for worker, process in (*alive(world),):
        if heard(world, worker, process):
            yield (
                f"fault: {process} {worker} is silent",
                partial(doubt, worker=worker, process=process),
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
    _beat_all(world)
    fleet_state = fleet_fold.apply(Fleet(), fleet.weights(policy="policy"), world.clock)
    for record in heartbeats(world):
        fleet_state = fleet_fold.apply(fleet_state, record, world.clock)
    name = f"scheduler-{epoch}"
    actor = SchedulerActor(name=name, epoch=epoch, log=world.log, fleet=fleet_state)
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
    entry = _due.get(key)
    if entry is None:
        if len(_due) > 200_000:
            _due.clear()
        entry = _due[key] = ((actor.log, actor.fleet), bool(_decided(world, actor, now_ms)))
    return entry[1]


def _replace(world: World, place: int, actor: SchedulerActor) -> None:
    world.schedulers = (*world.schedulers[:place], actor, *world.schedulers[place + 1 :])


def _read_control(world: World, place: int) -> None:
    """Read a record, and those behind it as long as nothing is decided in between."""
    epoch = world.schedulers[place].epoch
    while True:
        _read_next(world, place)
        matches = [scheduler for scheduler in world.schedulers if scheduler.epoch == epoch]
        if (
            not matches
            or not matches[0].control
            or (_acts(matches[0]) and _is_due(world, matches[0]))
        ):
            return


def _read_next(world: World, place: int) -> None:
    actor = world.schedulers[place]
    letter, unread = actor.control[0], actor.control[1:]
    if letter.behind.state.epoch > actor.epoch:
        # A newer claim ends it.
        world.schedulers = (*world.schedulers[:place], *world.schedulers[place + 1 :])
    else:
        _replace(world, place, replace(actor, log=letter.behind, control=unread))


def settle(world: World) -> None:
    """Let schedulers read what they may as well read at once."""
    for actor in world.schedulers:
        while actor in world.schedulers and _reads_at_once(world, actor):
            place = world.schedulers.index(actor)
            _read_next(world, place)
            actor = next(
                (scheduler for scheduler in world.schedulers if scheduler.epoch == actor.epoch),
                actor,
            )


def _reads_at_once(world: World, actor: SchedulerActor) -> bool:
    """Return True if to read the next record of `control` later would be the same.

    It is while the scheduler waits for what it wrote, since it decides nothing before. Afterwards
    only a heartbeat, or the want of one, lets it decide something before that record. That is a
    change of members, decided alone, and the same behind a record that changes neither them nor the
    epoch; unless a deadline may pass in between.
    """
    if not actor.control or not _acts(actor):
        return bool(actor.control)
    before, after = actor.log.state, actor.control[0].behind.state
    same = before.epoch == after.epoch and _members(before) == _members(after)
    return same and not world.left.deadlines and not _has_due(world, actor)


def _members(state: State) -> dict[str, object]:
    return {name: worker.processes for name, worker in state.workers.items()}


def _has_due(world: World, actor: SchedulerActor) -> bool:
    return _is_due(world, actor) or world.snapshot_epoch < actor.epoch


def _read_fleet(world: World, place: int) -> None:
    actor = world.schedulers[place]
    letter, unread = actor.unread_fleet[0], actor.unread_fleet[1:]
    fleet_state = fleet_fold.apply(actor.fleet, letter.record, world.clock)
    _replace(world, place, replace(actor, fleet=fleet_state, unread_fleet=unread))


def _decide(world: World, place: int) -> None:
    actor = world.schedulers[place]
    for topic, record in _decided(world, actor, world.tick()):
        if topic == CONTROL.name:
            world.to_control(record, actor.name)
        else:
            world.to_fleet(record, actor.name)
    if world.snapshot_epoch < actor.epoch:
        snapshot = fleet.snapshot(epoch=actor.epoch, state=b"", at_ms=world.tick())
        world.to_fleet(snapshot, actor.name)


def _take_over(world: World) -> None:
    world.left = world.left.less("takeovers")
    claim(world)


def _wait(world: World, wait_ms: int, free: bool) -> None:
    if not free:
        world.left = world.left.less("deadlines")
    world.clock += wait_ms
    _beat_all(world)


def _beat_all(world: World) -> None:
    """Let all that live have sent a heartbeat just now."""
    for record in [*heartbeats(world)]:
        if lives(world, record):
            world.compacted[fleet_key(record)] = replace(record, at_ms=world.clock)
    for name in world.newcomers:
        world.join(name)
