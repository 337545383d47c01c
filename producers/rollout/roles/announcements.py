"""The records that a rollout process writes to `control` and `fleet` about itself. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from seamlessflow.producers.rollout.engine.contract import EngineHealth
from seamlessflow.producers.rollout.roles.moves import Acquired, Loaded, Released
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.schemas import records as r
from seamlessflow.schemas.releases import this_release

AnnouncedState = Literal["starting", "ready", "paused", "asleep", "failed", "ended"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the worker that do not change while the process lives."""

    tags: tuple[str, ...]
    capacity: int
    hardware: Mapping[str, float]
    devices: tuple[int, ...] = ()


def heartbeat(
    roles: RolloutRoles,
    facts: Facts,
    state: AnnouncedState,
    health: EngineHealth | None,
    now_ms: int,
) -> r.WorkerHeartbeat:
    """Return the sign of life; `health` is None until there is an engine."""
    held = roles.held
    return r.WorkerHeartbeat(
        worker=roles.worker,
        incarnation=roles.incarnation,
        process="rollout",
        tags=facts.tags,
        role="rollout" if held else "none",
        assignment=roles.assignment,
        slot=held.slot if held else None,
        state=state,
        version=roles.loaded,
        policy=roles.policy,
        running=health.running if health else 0,
        waiting=health.waiting if health else 0,
        capacity=facts.capacity,
        hardware=facts.hardware,
        at_ms=now_ms,
        release=this_release().version,
        # One device needs no list, and an earlier release has no place for it.
        devices=facts.devices if len(facts.devices) > 1 else (),
    )


class _Origin(TypedDict):
    at_ms: int
    worker: str
    incarnation: str


def _origin(roles: RolloutRoles, now_ms: int) -> _Origin:
    """Return an event's time and writer."""
    return {"at_ms": now_ms, "worker": roles.worker, "incarnation": roles.incarnation}


def role_acquired(roles: RolloutRoles, outcome: Acquired, now_ms: int) -> r.RoleAcquired:
    """Return the record after which the manager may route turns here."""
    return r.RoleAcquired(
        **_origin(roles, now_ms),
        role="rollout",
        assignment=outcome.move.assignment,
        slot=outcome.move.slot,
        slot_offset=outcome.slot_offset,
        version=outcome.move.weights.version,
        took_ms=outcome.times.total_ms,
        policy=roles.policy,
        phases_ms=outcome.times.by_name,
    )


def role_released(
    roles: RolloutRoles, outcome: Released, handed_back: int, now_ms: int
) -> r.RoleReleased:
    """Return the record after which the device's memory is free for another role."""
    return r.RoleReleased(
        **_origin(roles, now_ms),
        role="rollout",
        assignment=outcome.move.assignment,
        free_bytes=outcome.free_bytes,
        handed_back=handed_back,
        took_ms=outcome.times.total_ms,
        phases_ms=outcome.times.by_name,
    )


def generation_paused(roles: RolloutRoles, running: int, now_ms: int) -> r.GenerationPaused:
    """Return the record which says that turns stand still for new weights."""
    return r.GenerationPaused(
        **_origin(roles, now_ms),
        mode="keep",
        running=running,
        reason="weights",
    )


def weights_loaded(roles: RolloutRoles, outcome: Loaded, now_ms: int) -> r.WeightsLoaded:
    """Return the record after which tokens come from the new version."""
    return r.WeightsLoaded(
        **_origin(roles, now_ms),
        policy=roles.policy,
        version=outcome.move.weights.version,
        took_ms=outcome.paused_ms,
    )


def generation_resumed(roles: RolloutRoles, outcome: Loaded, now_ms: int) -> r.GenerationResumed:
    """Return the record which says that turns go on."""
    return r.GenerationResumed(
        **_origin(roles, now_ms),
        version=outcome.move.weights.version,
        paused_ms=outcome.paused_ms,
    )
