"""Membership of the fleet: a process joins with a heartbeat and is lost without one. Pure.

Called by `scheduler/decisions/decide.py`.
"""

from seamlessflow.scheduler.decisions.contact import Contact
from seamlessflow.scheduler.state.fleet import GONE, Fleet, LatestHeartbeat
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import WorkerJoined, WorkerLost


def lost(
    state: State, fleet: Fleet, contact: Contact, now_ms: int, timeout_ms: int
) -> list[WorkerLost]:
    """Return members without a recent heartbeat, that failed or ended, or were replaced.

    Time without contact to Kafka does not count: no heartbeat could have been read then.
    """
    losses = []
    fresh_ms = contact.fresh_ms(timeout_ms)
    for name, worker in state.workers.items():
        for process, member in worker.processes.items():
            latest = fleet.heartbeats.get((name, process))
            if reason := _reason_lost(latest, member.incarnation, fresh_ms):
                losses.append(
                    WorkerLost(
                        epoch=state.epoch,
                        at_ms=now_ms,
                        worker=name,
                        incarnation=member.incarnation,
                        process=process,
                        reason=reason,
                    )
                )
    return losses


def joined(state: State, fleet: Fleet, now_ms: int, timeout_ms: int) -> list[WorkerJoined]:
    """Return the live processes that are not members yet."""
    workers = state.workers
    # A replaced incarnation is lost first; the new one joins once that was read back.
    return [
        WorkerJoined(
            epoch=state.epoch,
            at_ms=now_ms,
            worker=name,
            incarnation=latest.heartbeat.incarnation,
            process=process,
            tags=latest.heartbeat.tags,
            devices=latest.heartbeat.devices,
        )
        for (name, process), latest in fleet.heartbeats.items()
        if (name not in workers or process not in workers[name].processes)
        and latest.alive(now_ms, timeout_ms)
    ]


def _reason_lost(latest: LatestHeartbeat | None, incarnation: str, fresh_ms: float) -> str:
    if latest is None:
        return "no_heartbeat"
    if latest.heartbeat.incarnation != incarnation:
        return "replaced"
    if latest.heartbeat.state in GONE:
        return latest.heartbeat.state
    return "no_heartbeat" if latest.seen_ms < fresh_ms else ""
