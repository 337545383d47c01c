"""A session's waterfall: from its group's admission to the weights that its tokens made. Pure.

It is computed only from records on the log, so it does not depend on telemetry.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, first, of_kind
from seamlessflow.recorded.trace.session_rows import session_rows
from seamlessflow.recorded.trace.training_rows import (
    about_group,
    group_with,
    step_rows,
    task_rows,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import group_of_session
from seamlessflow.schemas.tokens import shown_step, step_name, trained_sessions
from seamlessflow.schemas.topics import DAY_MS, HOUR_MS, PROMPTS, REPLIES, REQUESTS, TASKS, Topic


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A session's rows, and notices about them."""

    session_id: str
    whole: tuple[Row, ...]
    """From the group's admission to the published weights."""
    session: tuple[Row, ...]
    """Within the session."""
    outcome: str
    """Outcome for its tokens: trained in a step, or the reason why not."""
    notices: tuple[str, ...]
    """Sentences about records that the log no longer has."""

    @property
    def start_ms(self) -> int:
        """When its first record was written; other times are shown relative to it."""
        return min(row.start_ms for row in (*self.whole, *self.session))


def waterfall(
    session_id: str, records: Sequence[Received], control: Sequence[Received]
) -> Waterfall:
    """Return a session's waterfall from its records (at least one) and all of `control`."""
    group_id = _group_of(records, session_id)
    of_group = about_group(control, group_id, session_id) if group_id else []
    steps = step_rows(control, group_id, session_id)
    whole = sorted(task_rows(records, of_group), key=lambda row: row.start_ms) + steps
    inside = session_rows(records, control)
    outcome = _outcome(records, of_group, steps, session_id)
    return Waterfall(
        session_id, tuple(whole), tuple(inside), outcome, tuple(_gone(records, session_id))
    )


def _group_of(records: Sequence[Received], session_id: str) -> str:
    opened = first(records, r.SessionOpened, r.OpenSession)
    if opened is not None:
        return str(getattr(opened.record, "group_id", ""))
    # A task with roles has its first role's group.
    return group_of_session(session_id) if first(records, r.Task) else ""


def _outcome(
    records: Sequence[Received], of_group: Sequence[Received], steps: Sequence[Row], session_id: str
) -> str:
    commits = [
        item.record
        for step in steps
        for item in step.records
        if step.name == "committed" and isinstance(item.record, r.StepCommitted)
    ]
    if commits:
        last = commits[-1]
        made = f"in {step_name(last.step)}, which made version {last.version}{_again(commits)}"
        why_not = _why_not(last, records, session_id)
        return f"{made}, but {why_not}" if why_not else f"trained {made}"
    return f"not trained: {_reason(records, of_group, steps, session_id)}"


def _why_not(commit: r.StepCommitted, records: Sequence[Received], session_id: str) -> str:
    """Return why a step trained nothing from a session in its batch; empty if it did."""
    if any(not any(event.loss_mask) for event, _ in of_kind(records, r.Trajectory)):
        return "none of its tokens may be trained"
    group = group_with(commit, session_id)
    if group is None or session_id in {*trained_sessions(commit, group), *commit.trained_tokens}:
        return ""
    for each in group.replaced:
        if each.session_id == session_id:
            return f"session {each.by} of the pool {each.pool} took its place"
    if group.filtered:
        return f"the filter {group.filtered} kept its group out of the loss"
    return "none of its tokens was in the loss: stale or masked"


def _again(commits: Sequence[r.StepCommitted]) -> str:
    """Return a text: other steps that trained a session by plan, and steps executed again."""
    counts = Counter(shown_step(commit.step) for commit in commits)
    last = shown_step(commits[-1].step)
    earlier = [str(step) for step in counts if step != last]
    repeated = [f"{step} ({count} times)" for step, count in counts.items() if count > 1]
    by_plan = f"; also trained, by plan, in {', '.join(earlier)}" if earlier else ""
    again = f"; executed again after a restart: {', '.join(repeated)}" if repeated else ""
    return by_plan + again


def _reason(
    records: Sequence[Received], of_group: Sequence[Received], steps: Sequence[Row], session_id: str
) -> str:
    """Return why no step has trained the session, the farthest on its way first."""
    if steps:
        return f"{steps[-1].name} is not committed yet"
    for dropped, _ in of_kind(of_group, r.GroupDropped):
        return f"group {dropped.group_id} was dropped ({dropped.reason}): {dropped.detail}"
    for failed, _ in of_kind(of_group, r.SampleFailed):
        return f"it spoilt its sample ({failed.cause}): {failed.detail}"
    if first(records, r.SessionOpened) is None:
        return "no agent has opened it"
    opened = next(of_kind(records, r.SessionOpened))[0]
    if opened.purpose != "train":
        return f"it is for {opened.purpose}"
    if first(records, r.SessionFinalized) is None:
        return (
            "it is open" if first(records, r.SessionClosed) is None else "it waits for its reward"
        )
    if first(records, r.Trajectory) is None:
        return "its trajectory is not on the log yet"
    for ready, _ in of_kind(of_group, r.GroupReady):
        if session_id not in ready.sessions:
            return f"group {ready.group_id} was ready without it"
        return f"group {ready.group_id} is ready and waits for a step"
    return f"group {opened.group_id} is not complete" if opened.group_id else "it has no group yet"


def _gone(records: Sequence[Received], session_id: str) -> list[str]:
    """Return a sentence for each topic that must have had the session's records and has none."""
    has_turn = first(records, r.TurnDispatched) is not None
    opened = first(records, r.SessionOpened)
    expected: list[tuple[Topic, bool]] = [
        (TASKS, opened is not None and bool(_group_of(records, session_id))),
        (REQUESTS, opened is not None),
        (PROMPTS, has_turn),
        (REPLIES, has_turn),
    ]
    topics = {item.topic for item in records}
    return [
        f"{topic.name}: none of its records is there; the topic keeps them for {_span(topic)}"
        for topic, needed in expected
        if needed and topic.name not in topics
    ]


def _span(topic: Topic) -> str:
    days = topic.retention_ms // DAY_MS
    return f"{days} days" if days else f"{topic.retention_ms // HOUR_MS} h"
