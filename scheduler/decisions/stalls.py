"""Reports of work that should progress and does not. Pure.

The stall `refill` is reported at once: no credit is left to replace dropped groups, so only the
trainer can go on, by training with the ready groups or by skipping the step. Called by
`scheduler/decisions/decide.py`.
"""

from collections.abc import Iterable
from dataclasses import replace

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.steps import step_name

REFILL = "refill"
_WAITED_FOR = {"step": "train", "gang": "train", "rollout": "rollout", REFILL: "train"}
"""Kind of process that each stall waits for."""


def of_all(state: State, settings: SchedulerSettings, now_ms: int) -> list[ProgressStalled]:
    """Return the present stalls of all policies; those of further ones name their policy."""
    leading, *others = pacing.unfinished(state, settings)
    stalls = stalled(leading, settings, now_ms)
    for other in others:
        policy = other.policies[other.shown]
        stalls += [
            replace(stall, what=f"{stall.what} {policy}")
            for stall in stalled(other, settings, now_ms)
            # The groups that run are the same for all.
            if stall.what != "rollout"
        ]
    return stalls


def stalled(state: State, settings: SchedulerSettings, now_ms: int) -> list[ProgressStalled]:
    """Return the present stalls, also those that were reported before."""
    stalls = [*_training(state, settings, now_ms), *_rollout(state, settings, now_ms)]
    deadline_ms = milliseconds(settings.scheduler.stall_s)
    return [
        ProgressStalled(
            at_ms=now_ms,
            what=what,
            detail=detail,
            since_ms=since_ms,
            process=_WAITED_FOR[what],
            deadline_ms=0 if what == REFILL else deadline_ms,
        )
        for what, detail, since_ms in stalls
    ]


def unreported(state: State, stalls: Iterable[ProgressStalled]) -> list[ProgressStalled]:
    """Return the stalls that were not reported yet: one report for each begin."""
    return [stall for stall in stalls if state.stalled.get(stall.what) != stall.since_ms]


def _training(state: State, settings: SchedulerSettings, now_ms: int) -> list[tuple[str, str, int]]:
    waiting = state.steps.waiting
    if waiting is None:
        return []
    step, batch = waiting
    # What stood still before this scheduler began may have had no process: the run was ended.
    since_ms = max(batch.started_ms or batch.ready_ms, state.claimed_ms)
    if now_ms - since_ms < milliseconds(settings.scheduler.stall_s):
        return []
    if state.steps.under_way:
        return [("step", f"{step_name(step)} was started and does not end", since_ms)]
    return [("gang", f"{step_name(step)} has its batch and no gang", since_ms)]


def _rollout(state: State, settings: SchedulerSettings, now_ms: int) -> list[tuple[str, str, int]]:
    ledger = state.ledger
    # While a batch waits or trains, rollout may rest because no credit is free.
    if state.steps.waiting is not None or not state.rollouts_began or not ledger.moved_ms:
        return []
    since_ms = max(ledger.moved_ms, state.claimed_ms)
    quiet = now_ms - since_ms >= milliseconds(settings.scheduler.stall_s)
    if ledger.running and quiet:
        detail = f"{ledger.running} groups are running, {ledger.ready} ready"
        return [("rollout", detail, since_ms)]
    spent = pacing.withheld(state, settings, now_ms) > 0
    if spent and not ledger.running and not pacing.free_credits(state, settings, now_ms):
        detail = f"{ledger.dropped_in_step} groups dropped, {ledger.ready} ready, none running"
        return [(REFILL, detail, ledger.moved_ms)]
    return []
