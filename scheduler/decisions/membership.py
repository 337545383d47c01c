"""The fleet's membership: a process joins with a heartbeat and is lost without one. Pure.

A process counts as absent only for times when the scheduler could have read its records. So a Kafka
outage does not look like lost workers. `scheduler/journal.py` keeps these times as a `Contact`.
Called by `scheduler/decisions/decide.py`.
"""

from dataclasses import dataclass
from math import inf

from seamlessflow.scheduler.state.fleet import GONE, Fleet, LatestHeartbeat
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import WorkerJoined, WorkerLost

OUTAGE_MS = 4_000
"""Time without an answer after which contact is lost; all waiting times then begin again."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The current period of contact, or the last one; times in milliseconds since the epoch."""

    since_ms: int = 0
    """When the period began; 0 for the first, so heartbeats read at start count by their stamps."""
    last_ms: int = 0
    """When the last record or answer came."""

    def renewed(self, now_ms: int) -> "Contact":
        """Return the contact after a record or an answer at `now_ms`."""
        return Contact(now_ms if self.lost(now_ms) else self.since_ms, now_ms)

    def lost(self, now_ms: int) -> bool:
        """Return True if there is no contact at `now_ms`."""
        return now_ms - self.last_ms > OUTAGE_MS

    def waited_ms(self, since_ms: int) -> int:
        """Return how long the scheduler has waited since `since_ms` while in contact with Kafka."""
        return max(0, self.last_ms - max(since_ms, self.since_ms))

    def fresh_ms(self, timeout_ms: int) -> float:
        """Return the time since which no wait has been longer than `timeout_ms`."""
        due_ms = self.last_ms - timeout_ms
        return -inf if self.since_ms >= due_ms else due_ms


def lost(
    state: State, fleet: Fleet, contact: Contact, now_ms: int, timeout_ms: int
) -> list[WorkerLost]:
    """Return members that failed, ended, were replaced or have no recent heartbeat.

    Time without contact to Kafka does not count, since no heartbeat could be read then.
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
    # A replaced incarnation is lost first; the new one joins once that loss is read back.
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
