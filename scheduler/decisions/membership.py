"""Who counts as a worker: processes come with a heartbeat and go without. Pure.

Called by `scheduler/decisions/decide.py`.
"""

from scheduler.decisions.contact import Contact
from scheduler.state.fleet import Fleet, Sign
from scheduler.state.state import State
from schemas.records import WorkerJoined, WorkerLost


def lost(
    state: State, fleet: Fleet, contact: Contact, now_ms: int, timeout_ms: int
) -> list[WorkerLost]:
    """Processes that are counted with and gave no sign in time, failed, or are replaced.

    Time in which no sign could have been heard is not held against them.
    """
    found = []
    for name, worker in state.workers.items():
        for process, known in worker.processes.items():
            sign = fleet.signs.get((name, process))
            if reason := _why_lost(sign, known.incarnation, contact, timeout_ms):
                found.append(
                    WorkerLost(
                        epoch=state.epoch,
                        at_ms=now_ms,
                        worker=name,
                        incarnation=known.incarnation,
                        process=process,
                        reason=reason,
                    )
                )
    return found


def joined(state: State, fleet: Fleet, now_ms: int, timeout_ms: int) -> list[WorkerJoined]:
    """Live processes that are not counted with."""
    found = []
    for (name, process), sign in fleet.signs.items():
        worker = state.workers.get(name)
        counted = worker is not None and process in worker.processes
        if not counted and sign.alive(now_ms, timeout_ms):
            found.append(
                WorkerJoined(
                    epoch=state.epoch,
                    at_ms=now_ms,
                    worker=name,
                    incarnation=sign.heartbeat.incarnation,
                    process=process,
                    tags=sign.heartbeat.tags,
                )
            )
    return found


def _why_lost(sign: Sign | None, incarnation: str, contact: Contact, timeout_ms: int) -> str:
    if sign is None:
        return "no_heartbeat"
    if sign.heartbeat.incarnation != incarnation:
        return "replaced"
    if sign.heartbeat.state == "failed":
        return "failed"
    return "no_heartbeat" if contact.silence_ms(sign.seen_ms) > timeout_ms else ""
