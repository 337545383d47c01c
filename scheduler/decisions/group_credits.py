"""Credits for groups to train, and attempts at their samples. Pure.

Credits decide how many groups may be admitted now. Attempts decide which attempt is due and how
long it may take.

With B groups a batch there are (lag + 1) x B credits. A group holds one from its admission until it
is dropped or its step's weights are published. So groups that get ready in admission order are
trained at most `lag` steps later. The trainer's own staleness check finds groups that others
overtook. `pacing.extra_groups` adds further credits. Groups that a step does not take go on, and
are trained in a later step. Dropped groups are replaced, at most k x B of them a step (or a stall
time). No group is admitted that the remaining steps do not need. Called by `pacing.py`.
"""

from collections.abc import Mapping
from math import ceil

from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.ledger import AdmittedGroup
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.serving import ALWAYS, ServingProcesses
from seamlessflow.scheduler.state.state import State


def begun_ms(group: AdmittedGroup, serves: ServingProcesses) -> int:
    """Return the time from which a group's attempts are counted."""
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
    """Return the time for one attempt at a sample, including its grace and the judges' wait."""
    pacing = settings.pacing
    waits_s = pacing.task_grace_s + settings.rewards.longest_wait_s
    return milliseconds(pacing.task_timeout_s + waits_s)


def unfinished(state: State, settings: SchedulerSettings) -> Mapping[str, PolicyState]:
    """Return the policies with steps left, by name; the first policy if none has any."""
    policies = dict(zip(state.policies, state.by_policy, strict=True))
    steps = settings.run.steps
    left = {name: policy for name, policy in policies.items() if policy.finished_steps < steps}
    return left or {state.policies[0]: state.first}


def leading(state: State, settings: SchedulerSettings) -> PolicyState:
    """Return the first policy with steps left; its groups are the run's groups."""
    return next(iter(unfinished(state, settings).values()))


def free_credits(state: State, settings: SchedulerSettings, now_ms: int) -> int:
    """Return how many groups, or groups for each role, may be admitted now.

    A group holds a credit from each policy, so each policy must have one. The policy that needs the
    most groups decides how many are needed. With roles, a policy has a group for each of its roles.
    """
    run = settings.run
    counts = []
    for name, policy in unfinished(state, settings).items():
        sessions = max(1, [*run.roles.values()].count(name or run.policy))
        # Rounded up: an episode's groups are admitted together, and some may be dropped.
        counts.append([-(-count // sessions) for count in free_of(state, policy, settings, now_ms)])
    free = min(free for free, _ in counts)
    return max(0, min(free, max(needed for _, needed in counts)))


def free_of(
    state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int
) -> tuple[int, int]:
    """Return how many groups a policy has credits for, and how many its last steps need."""
    run = settings.run
    ledger = policy.ledger
    steps = policy.steps
    training = ledger.training
    extra = settings.pacing.extra_count(run.groups_per_step)
    free = (run.lag + 1) * run.groups_per_step + extra - len(training)
    left = run.steps + len(steps.skipped) - steps.committed
    wanted = left * run.groups_per_step
    # A group whose first attempts have timed out may come too late for the last steps, so one more
    # group is admitted for each such group.
    late = sum(
        not group.ready and served_ms(group, state.serving, now_ms) >= attempt_ms(settings)
        for group in training.values()
    )
    needed = wanted - ledger.ready - ledger.running + late
    return free - withheld(state, policy, settings, now_ms), needed


def withheld(state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int) -> int:
    """Return how many dropped groups are not replaced in this step."""
    stall_ms = milliseconds(settings.scheduler.stall_s)
    waits = max(0, now_ms - max(policy.steps.ended_ms, state.claimed_ms)) // stall_ms
    # Each further stall time without a step allows as many replacements again. So a run whose
    # groups are all dropped goes on slowly instead of stopping.
    refill = ceil(settings.pacing.refill * settings.run.groups_per_step)
    return max(0, policy.ledger.dropped_in_step - refill * (1 + waits))
