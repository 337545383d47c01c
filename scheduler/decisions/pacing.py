"""Pacing of rollout: groups to admit, tasks to issue, groups that have expired. Pure.

With B groups a batch there are (lag + 1) x B credits. A group holds one from its admission until it
is dropped or its step's weights are published. So groups that get ready in the order of their
admission are trained at most `lag` steps later. The trainer's own check of staleness finds groups
that others overtook. `pacing.extra_groups` is a number of further credits. Groups that a step does
not take go on, and are trained in a later step. Dropped groups are replaced, at most k x B of them
a step (or a stall time). No group is admitted that the remaining steps do not need. Called by
`scheduler/decisions/decide.py`.
"""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from seamlessflow.scheduler.decisions.showing import same_opponent
from seamlessflow.scheduler.sampling.draws import Drawn, TaskSampling, next_draws
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.ledger import EVAL, AdmittedGroup, Ledger
from seamlessflow.scheduler.state.policy_state import PolicyState
from seamlessflow.scheduler.state.serving import ALWAYS, ServingProcesses
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.steps import TrainingProgress
from seamlessflow.scheduler.tasks.mixture import Draws, TaskSets
from seamlessflow.scheduler.tasks.source import SamplingRule, TaskRow, TaskSource
from seamlessflow.schemas import records as r


class GroupUse(NamedTuple):
    """The use of a group."""

    purpose: str = "train"
    split: str = ""
    """Task set of an evaluation; empty for training, where the task or the settings name it."""


_TRAINING = GroupUse()
_NO_ARMS = Arms()
_IN_ORDER = TaskSampling()


def unfinished(state: State, settings: SchedulerSettings) -> Mapping[str, PolicyState]:
    """Return the policies that have steps left, by name; the first one if none has."""
    policies = dict(zip(state.policies, state.by_policy, strict=True))
    steps = settings.run.steps
    left = {name: policy for name, policy in policies.items() if policy.finished_steps < steps}
    return left or {state.policies[0]: state.first}


def leading(state: State, settings: SchedulerSettings) -> PolicyState:
    """Return the first policy that has steps left: its groups are those of the run."""
    return next(iter(unfinished(state, settings).values()))


def free_credits(state: State, settings: SchedulerSettings, now_ms: int) -> int:
    """Return how many groups may be admitted now.

    A group holds a credit of each policy, so each policy must have one. The policy that needs most
    groups decides how many are needed.
    """
    policies = unfinished(state, settings).values()
    counts = [_free_of(state, policy, settings, now_ms) for policy in policies]
    free = min(free for free, _ in counts)
    return max(0, min(free, max(needed for _, needed in counts)))


def _free_of(
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
    # A group whose first attempts have timed out may come too late for the last steps: one more
    # group is admitted for each.
    late = sum(
        not group.ready and _served_ms(group, state.serving, now_ms) >= attempt_ms(settings)
        for group in training.values()
    )
    needed = wanted - ledger.ready - ledger.running + late
    return free - withheld(state, policy, settings, now_ms), needed


def withheld(state: State, policy: PolicyState, settings: SchedulerSettings, now_ms: int) -> int:
    """Return how many dropped groups are not replaced in this step."""
    stall_ms = milliseconds(settings.scheduler.stall_s)
    waits = max(0, now_ms - max(policy.steps.ended_ms, state.claimed_ms)) // stall_ms
    # Each further stall time without a step allows as many replacements again, so that a run of
    # groups that are all dropped goes on slowly instead of stopping.
    refill = ceil(settings.pacing.refill * settings.run.groups_per_step)
    return max(0, policy.ledger.dropped_in_step - refill * (1 + waits))


def admissions(
    state: State,
    settings: SchedulerSettings,
    source: Draws,
    now_ms: int,
    arms: Arms = _NO_ARMS,
    sampling: TaskSampling = _IN_ORDER,
) -> list[r.GroupAdmitted]:
    """Return the groups to admit now: first for tasks to be tried again, then for new draws."""
    first = state.first.ledger.admitted
    began = all(policy.rollouts_began for policy in state.by_policy)
    # An agent may ask a frozen policy at once; later, a shared worker may be away from it.
    answered = first or not {*state.frozen} - {*state.serving.awake.values()}
    count = free_credits(state, settings, now_ms) if began and answered else 0
    draws = next_draws(state, arms, source, sampling, count)
    together = same_opponent(leading(state, settings).ledger, [drawn.opponent for drawn in draws])
    return [
        _group(state, settings, f"{settings.run.id}-{number}", drawn, now_ms)
        for number, drawn in enumerate(draws[:together], first)
    ]


def evaluations(
    state: State, settings: SchedulerSettings, split: str, source: TaskSource, now_ms: int
) -> list[r.GroupAdmitted]:
    """Return the groups that evaluate the present version on a set, if its round is due or begun.

    They take no credit.
    """
    steps = state.first.steps
    ledger = state.first.ledger
    version = steps.version
    if version is None or not state.first.rollouts_began:
        return []
    # Groups of this version that are on the log already are not admitted again.
    begun = ledger.eval_admitted.get(split, 0) if ledger.eval_version == version else 0
    if not begun and not _evaluation_due(steps, settings, split):
        return []
    # One of several sets is named, so that no two have the same groups.
    of_set = f"eval{version}-{split}" if split in settings.evaluation.sets else f"eval{version}"
    return [
        _group(
            state,
            settings,
            f"{settings.run.id}-{of_set}-{number}",
            Drawn(source.rows[number], SamplingRule()),
            now_ms,
            GroupUse(EVAL, split),
        )
        for number in range(begun, len(source.rows))
    ]


def _evaluation_due(steps: TrainingProgress, settings: SchedulerSettings, split: str) -> bool:
    """Return whether `every` steps were trained since the last round, or all steps of the run.

    Versions cannot be counted instead: after a resume they jump for the same steps.
    """
    every = settings.evaluation.terms(split).every
    evaluated = steps.evaluated.get(split, -1)
    ended = steps.trained >= settings.run.steps > evaluated
    return ended or steps.trained // every > evaluated // every


def expirations(state: State, policy: str, now_ms: int) -> list[r.GroupExpired]:
    """Return the groups whose deadline has passed, each once; `policy` is the run's first."""
    groups = {
        name: group
        for its_state in reversed(state.by_policy)
        for name, group in its_state.ledger.groups.items()
    }
    return [
        r.GroupExpired(
            epoch=state.epoch,
            at_ms=now_ms,
            group_id=name,
            detail=_failed_samples(group),
            policy=policy,
        )
        for name, group in groups.items()
        if not group.ready and not group.expired
        if _served_ms(group, state.serving, now_ms) >= group.deadline_ms - group.admitted_ms
    ]


def tasks(
    ledger: Ledger,
    issued: Mapping[str, Mapping[int, int]],
    settings: SchedulerSettings,
    sets: TaskSets,
    now_ms: int,
    serves: ServingProcesses = ALWAYS,
) -> list[r.Task]:
    """Return a task for each attempt that is due and newer than the one in `issued`.

    `issued` is the newest attempt by group and sample. The same attempt is always the same record.
    So a restarted scheduler may issue it again: the manager refuses a session that exists. `serves`
    counts the time of a group. It begins anew after all processes were lost, and stands while
    engines sleep during training.
    """
    first_ms = now_ms - attempt_ms(settings)
    return [
        _task(name, group, sample, attempt, settings, row, serves)
        for name, group in ledger.groups.items()
        if _may_be_due(group, name in issued, begun_ms(group, serves) > first_ms)
        and (source := _source_of(group, settings, sets))
        if (row := source.find(group.task_id))
        for sample in range(_begun(group, settings, row))
        if (attempt := due_attempt(group, sample, settings, now_ms, serves))
        > issued.get(name, {}).get(sample, -1)
    ]


def _source_of(group: AdmittedGroup, settings: SchedulerSettings, sets: TaskSets) -> Draws | None:
    if group.purpose != EVAL:
        return sets.training
    return sets.evaluations.get(group.split or settings.evaluation.split)


def _may_be_due(group: AdmittedGroup, issued: bool, first_attempt: bool) -> bool:
    """Return True if a sample of the group may be due; this cheap test excludes most groups."""
    if group.ready or group.expired:
        return False
    return not (issued and first_attempt and not group.failures)


def begun_ms(group: AdmittedGroup, serves: ServingProcesses) -> int:
    """Return the time since which a group's attempts are counted."""
    return max(group.admitted_ms, serves.since_ms)


def _served_ms(group: AdmittedGroup, serves: ServingProcesses, at_ms: int) -> int:
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
    by_time = _served_ms(group, serves, now_ms) // attempt_ms(settings)
    return min(max(after_failure, by_time), settings.pacing.max_attempts - 1)


def attempt_ms(settings: SchedulerSettings) -> int:
    """Return the time of one attempt at a sample, its grace included."""
    return milliseconds(settings.pacing.task_timeout_s + settings.pacing.task_grace_s)


def _sizes(purpose: str, split: str, settings: SchedulerSettings, row: TaskRow) -> tuple[int, int]:
    """Return how many samples a group of the task asks for, and the least number to train."""
    if purpose == EVAL:
        return settings.evaluation.terms(split).samples, 1
    size = settings.run.group_size if row.samples is None else row.samples
    least = settings.run.least_samples if row.min_samples is None else row.min_samples
    return size, min(least, size)


def _sizes_of(group: AdmittedGroup, settings: SchedulerSettings, row: TaskRow) -> tuple[int, int]:
    """Return both as recorded; for a group from before 0.1.0, as the settings have them now."""
    size, least = _sizes(group.purpose, group.split, settings, row)
    return group.size or size, group.min_size or least


def _begun(group: AdmittedGroup, settings: SchedulerSettings, row: TaskRow) -> int:
    """Return the number of samples that a group begins: more than it needs, with redundancy."""
    spare = 0 if group.purpose == EVAL else settings.pacing.redundancy
    return _sizes_of(group, settings, row)[0] + spare


def _group(
    state: State,
    settings: SchedulerSettings,
    name: str,
    drawn: Drawn,
    now_ms: int,
    use: GroupUse = _TRAINING,
) -> r.GroupAdmitted:
    row = drawn.row
    size, least = _sizes(use.purpose, use.split, settings, row)
    if drawn.samples is not None:
        size = drawn.samples
        least = min(least, size)
    limits = [drawn.turn_limit, row.turn_limit, settings.run.turn_limit]
    return r.GroupAdmitted(
        epoch=state.epoch,
        at_ms=now_ms,
        group_id=name,
        task_id=row.task_id,
        version=state.first.steps.version or 0,
        deadline_ms=now_ms + milliseconds(settings.pacing.group_timeout_s),
        purpose=use.purpose,
        split=use.split if use.purpose == EVAL else row.split or settings.pacing.split,
        policy=settings.run.policy,
        group_size=size,
        min_group_size=least,
        tags=row.tags,
        turn_limit=next(limit for limit in limits if limit is not None),
        parent_session=row.fork.origin.session_id if row.fork else "",
        parent_turn=row.fork.origin.turn_id if row.fork else "",
        sampler=drawn.rule.name,
        sampler_version=drawn.rule.version,
        sampler_figures=drawn.rule.figures,
        sampler_sha256=drawn.rule.source_sha256,
        arms=drawn.arms,
        terms=drawn.terms,
        terms_sha256=drawn.terms_sha256,
    )


def _task(
    name: str,
    group: AdmittedGroup,
    sample: int,
    attempt: int,
    settings: SchedulerSettings,
    row: TaskRow,
    serves: ServingProcesses,
) -> r.Task:
    evaluates = group.purpose == EVAL
    failure = group.failures.get(sample)
    # Computed from the log alone, never from the clock: a repeat has to be the same record.
    issued_ms = serves.after(begun_ms(group, serves), attempt * attempt_ms(settings))
    if failure is not None and failure.attempt == attempt - 1:
        issued_ms = max(min(issued_ms, failure.at_ms), serves.since_ms)
    left_ms = group.deadline_ms - group.admitted_ms - _served_ms(group, serves, issued_ms)
    size, least = _sizes_of(group, settings, row)
    named = settings.evaluation.split if evaluates else row.split or settings.pacing.split
    split = group.split or named
    terms = settings.evaluation.terms(split)
    return r.Task(
        policy=settings.run.policy,
        purpose=group.purpose,
        split=split,
        task_id=row.task_id,
        group_id=name,
        sample=sample,
        attempt=attempt,
        group_size=size,
        min_group_size=least,
        turn_limit=group.turn_limit,
        pinned_version=group.version if evaluates and terms.pinned else None,
        metadata=row.metadata,
        payload=row.payload,
        fork=row.fork,
        issued_at_ms=issued_ms,
        deadline_ms=issued_ms + min(milliseconds(settings.pacing.task_timeout_s), left_ms),
        overrides=terms.sampling.overrides if evaluates else None,
    )


def _failed_samples(group: AdmittedGroup) -> str:
    failed = ", ".join(str(sample) for sample in sorted(group.failures))
    return f"samples that failed: {failed}" if failed else ""
