"""Attempts at the samples of a group: which is due, and how long each may take. Pure."""

from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.ledger import AdmittedGroup
from seamlessflow.scheduler.state.serving import ALWAYS, ServingProcesses


def begun_ms(group: AdmittedGroup, serves: ServingProcesses) -> int:
    """Return the time since which a group's attempts are counted."""
    return max(group.admitted_ms, serves.since_ms)


def served_ms(group: AdmittedGroup, serves: ServingProcesses, at_ms: int) -> int:
    """Return how much of a group's time has passed."""
    return serves.served_ms(begun_ms(group, serves), at_ms)


def due_attempt(
    group: AdmittedGroup,
    sample: int,
    settings: SchedulerSettings,
    now_ms: int,
    serves: ServingProcesses = ALWAYS,
) -> int:
    """Return the attempt a sample is at: one more than the last that failed or timed out."""
    failure = group.failures.get(sample)
    if failure is not None and failure.final:
        return failure.attempt
    after_failure = 0 if failure is None else failure.attempt + 1
    by_time = served_ms(group, serves, now_ms) // attempt_ms(settings)
    return min(max(after_failure, by_time), settings.pacing.max_attempts - 1)


def attempt_ms(settings: SchedulerSettings) -> int:
    """Return the time of one attempt at a sample: its grace, and the wait for judges, included."""
    pacing = settings.pacing
    waits_s = pacing.task_grace_s + settings.rewards.longest_wait_s
    return milliseconds(pacing.task_timeout_s + waits_s)
