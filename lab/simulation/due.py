"""The next time at which a decision may differ without a new record. Pure.

`decide` depends on the time through deadlines, pauses and waits alone, so that a caller who knows
the next of them need not ask in between. Called by the simulator.
"""

from collections.abc import Iterator

from seamlessflow.scheduler.decisions import waste
from seamlessflow.scheduler.decisions.decide import Rules, View
from seamlessflow.scheduler.decisions.gates import TRIPS_APART, UNMEASURED_SWITCH_MS
from seamlessflow.scheduler.decisions.pacing import attempt_ms, begun_ms
from seamlessflow.scheduler.decisions.snapshot import retry_ms
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.state import State


def next_due_ms(view: View, rules: Rules, now_ms: int) -> int | None:
    """Return the first such time after `now_ms`, or None if only a record can change a decision.

    Heartbeats and contact with Kafka are left out: a process has those by its clock.
    """
    state, settings = view.state, rules.settings
    times = (
        *_of_groups(state, settings, now_ms),
        *_of_workers(state, now_ms),
        *_of_moves(state, settings),
        *_of_waits(state, settings, now_ms),
    )
    return min((time for time in times if time > now_ms), default=None)


def _of_groups(state: State, settings: SchedulerSettings, now_ms: int) -> Iterator[int]:
    every_ms, serves = attempt_ms(settings), state.serving
    for group in state.ledger.groups.values():
        if not group.ready and not group.expired:
            since_ms = begun_ms(group, serves)
            yield serves.after(since_ms, group.deadline_ms - group.admitted_ms)
            attempt = serves.served_ms(since_ms, now_ms) // every_ms
            yield serves.after(since_ms, (attempt + 1) * every_ms)


def _of_workers(state: State, now_ms: int) -> Iterator[int]:
    for worker in state.workers.values():
        assignment = worker.assignment
        if assignment is not None and assignment.acquired_ms is None and not assignment.lapsed:
            yield assignment.deadline_ms
        for failures in worker.failures.values():
            yield retry_ms(failures)


def _of_moves(state: State, settings: SchedulerSettings) -> Iterator[int]:
    """Yield the times at which a worker that holds training may leave it (`gates.may_leave`)."""
    if state.steps.waiting is not None:
        return
    dwell_ms = milliseconds(settings.scheduler.min_dwell_s)
    parts = [state.costs.switch_mean(role) for role in ("train", "rollout")]
    measured = [part for part in parts if part is not None]
    switch_ms = sum(measured) if len(measured) == len(parts) else UNMEASURED_SWITCH_MS
    for worker in state.workers.values():
        assignment = worker.assignment
        if worker.role == "train" and assignment is not None and assignment.acquired_ms is not None:
            yield assignment.acquired_ms + dwell_ms
            # It must have waited longer than the switch takes, and may not leave so too often.
            waited_ms = int(max(state.steps.ended_ms, assignment.acquired_ms) + switch_ms) + 1
            yield waited_ms
            if len(measured) == len(parts):
                yield max(waited_ms, int(assignment.acquired_ms + TRIPS_APART * switch_ms) + 1)


def _of_waits(state: State, settings: SchedulerSettings, now_ms: int) -> Iterator[int]:
    yield state.claimed_ms + waste.SETTLED_MS
    yield state.claimed_ms + milliseconds(settings.scheduler.assignment_timeout_s)
    stall_ms = milliseconds(settings.scheduler.stall_s)
    waiting = state.steps.waiting
    if waiting is not None:
        yield (waiting[1].started_ms or waiting[1].ready_ms) + stall_ms
    yield state.ledger.moved_ms + stall_ms
    # Further replacements of dropped groups are allowed once for each stall time.
    since_ms = max(state.steps.ended_ms, state.claimed_ms)
    yield since_ms + (max(0, now_ms - since_ms) // stall_ms + 1) * stall_ms
