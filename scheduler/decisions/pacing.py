"""Pacing of rollout: groups to admit, tasks to issue, groups that have expired. Pure.

Admitting a group takes a credit (`group_credits.py`). Called by `scheduler/decisions/decide.py`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seamlessflow.scheduler.decisions.episodes import (
    by_episode,
    further_roles,
    of_first_role,
    roles_of,
)
from seamlessflow.scheduler.decisions.exploration import (
    free_explorations,
    placed,
    to_sample_again,
)
from seamlessflow.scheduler.decisions.group_credits import (
    attempt_ms,
    begun_ms,
    due_attempt,
    free_credits,
    free_of,
    leading,
    served_ms,
    withheld,
)
from seamlessflow.scheduler.decisions.showing import same_opponent
from seamlessflow.scheduler.sampling.draws import Drawn, TaskSampling, next_draws
from seamlessflow.scheduler.sampling.live_forks import next_forks
from seamlessflow.scheduler.settings import SchedulerSettings, milliseconds
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.ledger import EVAL, EXPLORE, TRAIN, AdmittedGroup, Ledger
from seamlessflow.scheduler.state.serving import ALWAYS, ServingProcesses
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.state.steps import TrainingProgress
from seamlessflow.scheduler.tasks.mixture import Draws, TaskSets
from seamlessflow.scheduler.tasks.source import SamplingRule, TaskRow, TaskSource
from seamlessflow.schemas import records as r


class GroupUse(NamedTuple):
    """A group's use."""

    purpose: str = TRAIN
    split: str = ""
    """An evaluation's task set; empty for training, where task or settings name the split."""


_TRAINING = GroupUse()
_EXPLORING = GroupUse(EXPLORE)
_NO_ARMS = Arms()
_IN_ORDER = TaskSampling()


def admissions(
    state: State,
    settings: SchedulerSettings,
    source: Draws,
    now_ms: int,
    arms: Arms = _NO_ARMS,
    sampling: TaskSampling = _IN_ORDER,
) -> list[r.GroupAdmitted]:
    """Return the groups to admit now: forks first, then tasks to try again, then new draws.

    If tasks are explored first, a draw begins an exploration, which takes no credit.
    """
    if (admitting := state.first.ledger.admitting) is not None:
        return further_roles(admitting, state)  # a scheduler ended between two roles
    first = state.first.ledger.admitted
    began = all(policy.rollouts_began for policy in state.by_policy)
    # An agent may ask a frozen policy at once; later, a shared worker may be away from it.
    answered = first or not {*state.frozen} - {*state.serving.awake.values()}
    if not (began and answered):
        return []
    run = settings.run.id
    ledger = state.first.ledger
    sampler = settings.pacing.sampler
    count = free_credits(state, settings, now_ms)
    if sampler.explores:
        drawn = to_sample_again(ledger, sampler, source)[:count]
    else:
        drawn = next_forks(state, arms, source, sampling, count)
        drawn += next_draws(state, arms, source, sampling, count - len(drawn))
    together = same_opponent(leading(state, settings).ledger, [each.opponent for each in drawn])
    admitted = [
        _group(state, settings, f"{run}-{number}", each, now_ms)
        for number, each in enumerate(drawn[:together], first)
    ]
    if sampler.explores:
        _, needed = free_of(state, state.first, settings, now_ms)
        lost = withheld(state, state.first, settings, now_ms)
        count = max(0, free_explorations(ledger, sampler, needed) - lost)
        admitted += [
            _group(state, settings, f"{run}-explore-{number}", each, now_ms, _EXPLORING)
            for number, each in enumerate(
                next_draws(state, arms, source, sampling, count), ledger.explored
            )
        ]
    return [record for group in admitted for record in (group, *further_roles(group, state))]


def evaluations(
    state: State, settings: SchedulerSettings, split: str, source: TaskSource, now_ms: int
) -> list[r.GroupAdmitted]:
    """Return the groups that evaluate the current version on a set, if a round is due or begun.

    They take no credit.
    """
    steps = state.first.steps
    ledger = state.first.ledger
    version = steps.version
    if version is None or not state.first.rollouts_began:
        return []
    # Groups for this version that are on the log already are not admitted again.
    begun = ledger.eval_admitted.get(split, 0) if ledger.eval_version == version else 0
    if not begun and not _evaluation_due(steps, settings, split):
        return []
    # With several sets each set is named, so that no two sets have the same groups.
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
    """Return whether `every` steps were trained since the last round, or the run has all steps.

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
            policy=_policy_of(name, group) or policy,
        )
        for name, group in groups.items()
        if not group.ready and not group.expired
        if served_ms(group, state.serving, now_ms) >= group.deadline_ms - group.admitted_ms
    ]


def _policy_of(name: str, group: AdmittedGroup) -> str:
    """Return the policy of a group's role; empty for a group that all policies share."""
    return next((role.policy for role in group.roles if role.group_id == name), "")


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
    counts a group's time. That time begins again after all processes were lost, and stands still
    while engines sleep during training.
    """
    first_ms = now_ms - attempt_ms(settings)
    written = []
    for name, groups in by_episode(ledger).items():
        due = [
            group
            for group in groups
            if _may_be_due(group, name in issued, begun_ms(group, serves) > first_ms)
        ]
        source = _source_of(due[0], settings, sets) if due else None
        row = source.find(due[0].task_id) if source else None
        if row is None:
            continue
        for sample in range(_begun(due[0], settings, row)):
            attempt = max(due_attempt(group, sample, settings, now_ms, serves) for group in due)
            if attempt > issued.get(name, {}).get(sample, -1):
                written.append(_task(name, due, sample, attempt, settings, row, serves))
    return written


def _source_of(group: AdmittedGroup, settings: SchedulerSettings, sets: TaskSets) -> Draws | None:
    if group.purpose != EVAL:
        return sets.training
    return sets.evaluations.get(group.split or settings.evaluation.split)


def _may_be_due(group: AdmittedGroup, issued: bool, first_attempt: bool) -> bool:
    """Return True if one of the group's samples may be due; a cheap test that excludes most."""
    if group.ready or group.expired:
        return False
    return not (issued and first_attempt and not group.failures)


def _sizes(purpose: str, split: str, settings: SchedulerSettings, row: TaskRow) -> tuple[int, int]:
    """Return how many samples a group asks for, and how many it needs at least for training."""
    if purpose == EVAL:
        return settings.evaluation.terms(split).samples, 1
    if purpose == EXPLORE:
        return settings.pacing.sampler.samples, 1
    size = settings.run.group_size if row.samples is None else row.samples
    least = settings.run.least_samples if row.min_samples is None else row.min_samples
    return size, min(least, size)


def _sizes_of(group: AdmittedGroup, settings: SchedulerSettings, row: TaskRow) -> tuple[int, int]:
    """Return both sizes as recorded; for a group from before 0.1.0, as the settings have them."""
    size, least = _sizes(group.purpose, group.split, settings, row)
    return group.size or size, group.min_size or least


def _begun(group: AdmittedGroup, settings: SchedulerSettings, row: TaskRow) -> int:
    """Return how many samples a group begins: with redundancy, more than it needs."""
    spare = settings.pacing.redundancy if group.purpose == TRAIN else 0
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
        # A fork is compared with the session that it goes on from, so one sample is enough.
        least = min(least, size) if drawn.fork_at is None else 1
    limits = [drawn.turn_limit, row.turn_limit, settings.run.turn_limit]
    group = r.GroupAdmitted(
        epoch=state.epoch,
        at_ms=now_ms,
        group_id=name,
        task_id=row.task_id,
        version=state.first.steps.version or 0,
        deadline_ms=now_ms
        + milliseconds(settings.pacing.group_timeout_s + settings.rewards.longest_wait_s),
        purpose=use.purpose,
        split=use.split if use.purpose == EVAL else row.split or settings.pacing.split,
        policy=settings.run.policy,
        group_size=size,
        min_group_size=least,
        tags=row.tags,
        turn_limit=next(limit for limit in limits if limit is not None),
        **_parent(drawn),
        sampler=drawn.rule.name,
        sampler_version=drawn.rule.version,
        sampler_figures=drawn.rule.figures,
        sampler_sha256=drawn.rule.source_sha256,
        arms=drawn.arms,
        terms=drawn.terms,
        terms_sha256=drawn.terms_sha256,
        fork_at=drawn.fork_at,
        explored=drawn.explored,
        seeds=drawn.seeds,
        roles=roles_of(name, settings.run, row.roles) if use.purpose == TRAIN else (),
    )
    return of_first_role(group, state)


def _parent(drawn: Drawn) -> dict[str, str]:
    """Return the session and turn that the group goes on from, in `GroupAdmitted` fields."""
    place = drawn.fork_at
    if place is not None:
        return {"parent_session": place.session_id, "parent_turn": str(place.turn)}
    if drawn.row.fork is None:
        return {}
    origin = drawn.row.fork.origin
    return {"parent_session": origin.session_id, "parent_turn": origin.turn_id}


def _task(
    name: str,
    groups: Sequence[AdmittedGroup],
    sample: int,
    attempt: int,
    settings: SchedulerSettings,
    row: TaskRow,
    serves: ServingProcesses,
) -> r.Task:
    """Return the task for an attempt; `groups` are those whose samples are the same episodes."""
    group = groups[0]
    evaluates = group.purpose == EVAL
    failures = [each.failures[sample] for each in groups if sample in each.failures]
    failed_ms = [failure.at_ms for failure in failures if failure.attempt == attempt - 1]
    # Computed from the log alone, never from the clock, because a repeat must be the same record.
    issued_ms = serves.after(begun_ms(group, serves), attempt * attempt_ms(settings))
    if failed_ms:
        issued_ms = max(min(issued_ms, *failed_ms), serves.since_ms)
    left_ms = group.deadline_ms - group.admitted_ms - served_ms(group, serves, issued_ms)
    size, least = _sizes_of(group, settings, row)
    named = settings.evaluation.split if evaluates else row.split or settings.pacing.split
    split = group.split or named
    terms = settings.evaluation.terms(split)
    return r.Task(
        policy=group.roles[0].policy if group.roles else settings.run.policy,
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
        metadata=placed(row.metadata, group, settings.pacing.sampler),
        payload=row.payload,
        fork=row.fork,
        issued_at_ms=issued_ms,
        deadline_ms=issued_ms + min(milliseconds(settings.pacing.task_timeout_s), left_ms),
        overrides=terms.sampling.overrides if evaluates else None,
        fork_at=group.fork_at,
        seed_session=group.seeds[sample] if sample < len(group.seeds) else None,
        roles=group.roles,
    )


def _failed_samples(group: AdmittedGroup) -> str:
    failed = ", ".join(str(sample) for sample in sorted(group.failures))
    return f"samples that failed: {failed}" if failed else ""
