"""Rows around a session: its group, task and trajectory, and the step that trained it. Pure."""

from collections.abc import Sequence

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, first, of_kind, row
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id as session_of
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.step_methods import listed

_GROUP_ENDED = (r.GroupReady, r.GroupDropped)


def about_group(control: Sequence[Received], group_id: str, session_id: str) -> list[Received]:
    """Return the `control` records about a group; of failed samples only this session's."""
    return [
        item
        for item in control
        if getattr(item.record, "group_id", None) == group_id
        and not (isinstance(item.record, r.SampleFailed) and _session(item.record) != session_id)
    ]


def task_rows(records: Sequence[Received], of_group: Sequence[Received]) -> list[Row]:
    """Return the rows from the group's admission to the session's trajectory."""
    rows = [*_group(of_group)]
    opened = first(records, r.SessionOpened)
    finalized = first(records, r.SessionFinalized)
    taken = first(records, r.OpenSession) or opened
    for task, item in of_kind(records, r.Task):
        until = "until an agent took it" if taken else "no agent has taken it"
        detail = ", ".join(filter(None, [task.task_id, until]))
        rows.append(row("task", item, taken, detail=detail, under_way=taken is None))
    if opened is not None:
        turns = sum(1 for _ in of_kind(records, r.TurnStarted))
        detail = f"{turns} turns" if turns != 1 else "1 turn"
        rows.append(
            row("session", taken, opened, finalized, detail=detail, under_way=finalized is None)
        )
    for trajectory, item in of_kind(records, r.Trajectory):
        tokens = len(trajectory.loss_mask)
        trainable = sum(trajectory.loss_mask)
        detail = f"{tokens} tokens, {trainable} may be trained"
        rows.append(row("trajectory", finalized, item, detail=detail))
    for failed, item in of_kind(of_group, r.SampleFailed):
        rows.append(row("sample failed", item, detail=failed.cause))
    return rows


def step_rows(control: Sequence[Received], group_id: str, session_id: str) -> list[Row]:
    """Return rows for each step that trained the session, or for the step that will train it."""
    commits = [
        (commit, item)
        for commit, item in of_kind(control, r.StepCommitted)
        if group_with(commit, session_id) is not None
    ]
    if commits:
        # After a restart the trainer executes a step again, in another lineage.
        again = len(commits) > 1
        return [
            entry
            for commit, item in commits
            for entry in _committed(control, commit, item, again, _by_plan(commit, session_id))
        ]
    batches = [
        (batch, item)
        for batch, item in of_kind(control, r.BatchReady)
        if group_id and group_id in batch.groups
    ]
    if not batches:
        return []
    batch, item = batches[-1]
    begun = [at for event, at in of_kind(control, r.StepStarted) if event.step == batch.step]
    started = next((at for at in begun if at.offset > item.offset), None)
    rows = [_batch(batch, item)]
    if started is not None:
        rows.append(row(step_name(batch.step), started, detail="under way", under_way=True))
    return rows


def _session(failed: r.SampleFailed) -> str:
    return session_of(failed.group_id, failed.sample, failed.attempt)


def _group(of_group: Sequence[Received]) -> list[Row]:
    admitted = first(of_group, r.GroupAdmitted)
    ended = first(of_group, *_GROUP_ENDED)
    if admitted is None and ended is None:
        return []
    match ended.record if ended else None:
        case r.GroupReady() as ready:
            detail = f"ready with {len(ready.sessions)} sessions, mean reward {ready.reward_mean:g}"
        case r.GroupDropped(reason=reason):
            detail = f"dropped: {reason}"
        case _:
            detail = "not complete"
    record = (admitted or ended).record  # type: ignore[union-attr]
    if isinstance(record, r.GroupAdmitted) and record.group_size:
        detail += f"; asked for {record.group_size}, at least {record.min_group_size}"
        detail += f" by {record.terms}" if record.terms else ""
        detail += f", drawn from {_drawn_from(record)}" if record.split else ""
        detail += f", role {record.role}" if record.role else ""
        detail += f", tags {', '.join(record.tags)}" if record.tags else ""
        detail += f", at most {record.turn_limit} turns" if record.turn_limit else ""
        if record.explored:
            detail += f", samples {len(record.seeds)} sessions of {record.explored} again"
        if record.parent_session:
            detail += f", from turn {record.parent_turn} of session {record.parent_session}"
    name = f"group {getattr(record, 'group_id', '')}"
    return [row(name, admitted, ended, detail=detail, under_way=ended is None)]


def _drawn_from(record: r.GroupAdmitted) -> str:
    """Return a group's task set, with the figures by which its task was chosen."""
    figures = ", ".join(
        f"{name} {figure:g}" for name, figure in sorted(record.sampler_figures.items())
    )
    file = f"file {record.sampler_sha256[:12]}" if record.sampler_sha256 else ""
    chosen = ", ".join(filter(None, [record.sampler, file, figures]))
    return f"{record.split} ({chosen})" if chosen else record.split


def _batch(batch: r.BatchReady, item: Received) -> Row:
    detail = f"{len(batch.groups)} groups, {batch.trainable_tokens} tokens"
    return row(f"batch of {step_name(batch.step)}", item, detail=detail)


def group_with(commit: r.StepCommitted, session_id: str) -> r.StepGroup | None:
    """Return the group that has a session, or in which it replaced another; None if none does."""
    of_group = (group for group in commit.groups if session_id in group.sessions)
    replacing = (
        group for group in commit.groups if any(each.by == session_id for each in group.replaced)
    )
    return next(replacing, None) or next(of_group, None)


def _by_plan(commit: r.StepCommitted, session_id: str) -> str:
    """Return how a stored session came into a step, and how many steps trained it before."""
    group = group_with(commit, session_id)
    if group is None:
        return ""
    for each in group.replaced:
        if each.by == session_id:
            place = f", in the place of session {each.session_id} of group {group.group_id}"
            return f"{place}{_steps_before(each.uses)}"
    return _steps_before(group.reused)


def _steps_before(count: int) -> str:
    return f", trained by {count} steps before, by plan" if count else ""


def _committed(
    control: Sequence[Received], commit: r.StepCommitted, at: Received, again: bool, by_plan: str
) -> list[Row]:
    before = [item for item in control if item.offset < at.offset]
    behind = [item for item in control if item.offset > at.offset]
    batches = [pair for pair in of_kind(before, r.BatchReady) if pair[0].step == commit.step]
    begun = [item for event, item in of_kind(before, r.StepStarted) if event.step == commit.step]
    completed = next(
        (
            item
            for event, item in of_kind(behind, r.StepCompleted)
            if event.lineage == commit.lineage
        ),
        None,
    )
    published = next(
        (
            item
            for event, item in of_kind(behind, r.WeightsPublished)
            if (event.version, event.lineage) == (commit.version, commit.lineage)
        ),
        None,
    )
    rows = [_batch(*batches[-1])] if batches else []
    lineage = f", lineage {commit.lineage}" if again else ""
    rows.append(
        row(
            step_name(commit.step),
            begun[-1] if begun else None,
            at,
            completed,
            detail=f"makes version {commit.version}{lineage}{by_plan}",
            under_way=completed is None,
        )
    )
    methods = f"by {listed(commit.methods)}" if commit.methods else ""
    rows.append(row("committed", at, detail=methods, depth=1))
    if published is not None:
        rows.append(
            row("weights published", published, detail=f"version {commit.version}", depth=1)
        )
    return rows
