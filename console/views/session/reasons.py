"""The reason for each token in a session: what trained it, or which rule and record kept it out.

The first reason that applies counts, in this order: the session's own events, a step that trained
the token, a failed session, the rules of the step whose batch has the group, a dropped group. A
token without any of these was taken by no step yet. Pure; the page and its token ranges use the
result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seamlessflow.console.views.session.columns import TokenColumns, token_columns
from seamlessflow.console.views.session.folded import FoldedSession, fold_session
from seamlessflow.console.views.session.masks import OPEN, mask_reasons
from seamlessflow.console.views.session.reason import (
    ReasonRow,
    ReasonTable,
    TokenReason,
    reason_row,
)
from seamlessflow.console.views.session.trained_runs import (
    NO_RUNS,
    TrainedColumns,
    TrainedRuns,
    name_of,
    trained_columns,
)
from seamlessflow.console.views.session.training import BatchStep, GroupRecords, group_records
from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    any_strictness,
)
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Bools, Float32s, Int32s
from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import step_name


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSources:
    """Records behind a session's page, all up to one moment of the log."""

    session_id: str
    events: Sequence[Received] = ()
    """Its events on `sessions` and its partition's claims, in log order."""
    trajectory: Received | None = None
    control: Sequence[Received] = ()
    """Records on `control`, in log order."""
    trained: TrainedRuns = NO_RUNS
    strictness: Callable[[str], Strictness] = any_strictness


@dataclass(frozen=True, slots=True)
class ExplainedTokens:
    """A session's tokens (T) with a reason for each."""

    folded: FoldedSession | None
    logged: Received | None
    columns: TokenColumns
    reasons_T: Int32s
    """Number of the row in `rows`."""
    rows: tuple[ReasonRow, ...]
    advantages_T: Float32s
    """Advantage in the newest step that trained the token; NaN if none did or no file is here."""
    temperatures_T: Float32s
    groups: dict[str, GroupRecords]
    """By policy, the records of `control` about the session's group."""
    strangers: int
    """Tokens in `trained/` that the session does not have."""

    def tokens_by_kind(self) -> dict[TokenReason, int]:
        """Return how many tokens each kind has. Kinds without a token are left out."""
        counts: dict[TokenReason, int] = {}
        for row in self.rows:
            if row.tokens:
                counts[row.kind] = counts.get(row.kind, 0) + row.tokens
        return counts


def explained(sources: SessionSources) -> ExplainedTokens | None:
    """Return a session's tokens with their reasons, or None if nothing about it is on the log yet.

    Raises `NewerRelease`.
    """
    folded = fold_session(sources.events, sources.session_id, sources.strictness)
    record = sources.trajectory.record if sources.trajectory else None
    columns = token_columns(folded, record if isinstance(record, Trajectory) else None)
    if columns is None:
        return None
    explanation = _Explanation(columns, folded, sources.trajectory, sources.trained)
    reasons_T = mask_reasons(columns, folded, sources.trajectory, explanation.table)
    groups = {}
    for policy in _policies(columns):
        records = group_records(sources.control, columns.trajectory, policy)
        groups[policy] = records
        open_T = (reasons_T == OPEN) & _of_policy(columns, policy)
        explanation.explain(records, open_T, reasons_T)
    return ExplainedTokens(
        folded=folded,
        logged=sources.trajectory,
        columns=columns,
        reasons_T=reasons_T,
        rows=explanation.table.rows(reasons_T),
        advantages_T=explanation.advantages_T,
        temperatures_T=explanation.temperatures_T,
        groups=groups,
        strangers=explanation.strangers,
    )


def _policies(columns: TokenColumns) -> list[str]:
    whole = columns.trajectory.policy
    return list(dict.fromkeys([whole, *(node.policy or whole for node in columns.nodes)]))


def _of_policy(columns: TokenColumns, policy: str) -> Bools:
    whole = columns.trajectory.policy
    mine = np.array([_policy(node, whole) == policy for node in columns.nodes], np.bool_)
    return mine[columns.nodes_T] if len(mine) else np.zeros(len(columns), np.bool_)


def _policy(node: TrajectoryNode, whole: str) -> str:
    return node.policy or whole


class _Explanation:
    """Reasons for tokens that may be trained, one policy after the other."""

    def __init__(
        self,
        columns: TokenColumns,
        folded: FoldedSession | None,
        logged: Received | None,
        trained: TrainedRuns,
    ) -> None:
        self.table = ReasonTable()
        self.advantages_T, self.temperatures_T = np.full((2, len(columns)), np.nan, np.float32)
        self.strangers = 0
        self._columns = columns
        self._folded = folded
        self._logged = logged
        self._trained = trained

    def explain(self, records: GroupRecords, open_T: Bools, reasons_T: Int32s) -> None:
        """Fill in the reasons for one policy's open tokens."""
        trained_T = np.zeros(len(open_T), np.bool_)
        for step in records.surviving:
            in_step_T = self._trained_by(step, open_T)
            self._name_step(step, in_step_T, trained_T, reasons_T)
            trained_T |= in_step_T
        left_T = open_T & ~trained_T
        if not left_T.any():
            return
        if records.failed is None and records.surviving:
            self._left_by_step(records.surviving[-1], left_T, reasons_T)
        else:
            reasons_T[left_T] = self.table.number(self._in_no_step(records))

    def _trained_by(self, step: BatchStep, open_T: Bools) -> Bools:
        """Return the tokens that a step trained: by its file, else by its commit's count."""
        columns = self._columns
        runs = self._trained.by_step.get(name_of(step.commit))
        if runs is not None:
            rows: TrainedColumns = trained_columns(runs, columns.nodes, columns.ids_T)
            self.strangers += rows.strangers
            self.advantages_T = np.where(rows.trained_T, rows.advantages_T, self.advantages_T)
            self.temperatures_T = np.where(rows.trained_T, rows.temperatures_T, self.temperatures_T)
            return rows.trained_T
        count = step.commit.trained_tokens.get(columns.trajectory.session_id, 0)
        fresh_T = open_T & ~_too_stale(step, columns)
        whole = count and count == np.count_nonzero(fresh_T)
        return fresh_T if whole else np.zeros(len(open_T), np.bool_)

    def _name_step(
        self, step: BatchStep, in_step_T: Bools, trained_T: Bools, reasons_T: Int32s
    ) -> None:
        """Note the step. If earlier steps trained a token by plan, its reason names them too."""
        first_T = in_step_T & ~trained_T
        if first_T.any():
            reasons_T[first_T] = self.table.number(_trained_row(step, ""))
        for earlier in np.unique(reasons_T[in_step_T & trained_T]).tolist():
            row = _trained_row(step, self.table.row(earlier).words)
            reasons_T[in_step_T & trained_T & (reasons_T == earlier)] = self.table.number(row)

    def _left_by_step(self, step: BatchStep, left_T: Bools, reasons_T: Int32s) -> None:
        """Name what kept tokens out of a step's loss although the batch has their group."""
        stale_T = left_T & _too_stale(step, self._columns)
        whole = self._whole_session_out(step)
        if whole is None and stale_T.any():
            reasons_T[stale_T] = self.table.number(_stale_row(step))
            left_T = left_T & ~stale_T
        if left_T.any():
            reasons_T[left_T] = self.table.number(whole or self._rest_out(step))

    def _whole_session_out(self, step: BatchStep) -> ReasonRow | None:
        """Return the rule that took out the whole session before its tokens were looked at, or
        None."""
        trajectory = self._columns.trajectory
        name = step_name(step.commit.step)
        for each in step.group.replaced:
            if each.session_id == trajectory.session_id:
                words = f"session {each.by} of the pool {each.pool} took its place in {name}"
                return reason_row(TokenReason.LEFT_OUT, words, step.item, "replaced")
        overlong = step.settings.get("trainer", {}).get("overlong", {}).get("masked", ())
        if trajectory.limit and trajectory.limit in overlong:
            words = f"its session ended at {trajectory.limit}, and {name} leaves such sessions out"
            return reason_row(TokenReason.LEFT_OUT, words, step.item, "overlong")
        return None

    def _rest_out(self, step: BatchStep) -> ReasonRow:
        """Return the rule that kept fresh tokens out of a step's loss."""
        commit = step.commit
        name = step_name(commit.step)
        session_id = self._columns.trajectory.session_id
        if step.group.filtered:
            words = f"the filter {step.group.filtered} kept its group out of the loss of {name}"
            return reason_row(TokenReason.GROUP_FILTERED, words, step.item, step.group.filtered)
        choices = {"selection": "unselected", "pairs": "unpaired"}
        rules = [rule for kind, rule in choices.items() if step.method(kind)]
        if rules and session_id not in commit.trained_tokens:
            words = f"{name} trained other sessions of its group ({' or '.join(rules)})"
            return reason_row(TokenReason.LEFT_OUT, words, step.item, rules[0])
        if masks := step.method("mask"):
            words = f"the mask {masks} took it out of the loss of {name}"
            return reason_row(TokenReason.MASKED, words, step.item, masks.partition(",")[0])
        return _unknown_row(step, session_id, name_of(commit) in self._trained.by_step)

    def _in_no_step(self, records: GroupRecords) -> ReasonRow:
        """Return why no step that counts has the session: the last obstacle on its way."""
        if records.failed is not None and isinstance(
            failed := records.failed.record, r.SampleFailed
        ):
            words = f"its session does not count ({failed.cause}): {_last_line(failed.detail)}"
            return reason_row(TokenReason.SESSION_FAILED, words, records.failed, failed.cause)
        if records.dropped is not None and isinstance(records.dropped.record, r.GroupDropped):
            return _dropped_row(records.dropped, records.dropped.record)
        if records.steps:
            step = records.steps[-1]
            words = (
                f"{step_name(step.commit.step)} trained it, and a restart lost the weights; the "
                "step is to be executed again"
            )
            return reason_row(TokenReason.LOST_STEP, words, step.item)
        return self._waiting(records)

    def _waiting(self, records: GroupRecords) -> ReasonRow:
        trajectory = self._columns.trajectory
        kind = TokenReason.NOT_IN_STEP
        over = "the run ended before a step took it" if records.finished else ""
        if records.batch is not None and isinstance(batch := records.batch.record, r.BatchReady):
            words = f"in the batch of {step_name(batch.step)}, which is not committed"
            return reason_row(kind, over or words, records.finished or records.batch)
        if records.ready is not None and isinstance(ready := records.ready.record, r.GroupReady):
            if trajectory.session_id not in ready.sessions:
                return reason_row(kind, "its group was ready without it", records.ready)
            words = "its group is ready and waits for a step"
            return reason_row(kind, over or words, records.finished or records.ready)
        if self._folded is not None and self._folded.session.finalized_at_ms is None:
            closed = self._folded.event(r.SessionClosed)
            words = "its session waits for a reward" if closed else "its session is open"
            opened = closed or self._folded.event(r.SessionOpened)
            return reason_row(TokenReason.UNDER_WAY, words, opened)
        if trajectory.cause != "policy":
            words = (
                f"its session does not count ({trajectory.cause}): {_last_line(trajectory.reason)}"
            )
            return reason_row(TokenReason.SESSION_FAILED, words, self._logged, trajectory.cause)
        return reason_row(
            kind, over or "its group is not complete", records.finished or self._logged
        )


def _too_stale(step: BatchStep, columns: TokenColumns) -> Bools:
    """Return the tokens that are more optimizer steps old than a step allows."""
    if step.limit is None:
        return np.zeros(len(columns), np.bool_)
    ages_T = step.clock.ages_T(columns.versions_T)
    return (ages_T > step.limit) & (columns.versions_T >= 0)


def _trained_row(step: BatchStep, earlier: str) -> ReasonRow:
    name = f"trained in {step_name(step.commit.step)}, which made version {step.commit.version}"
    words = f"{earlier}; {name}" if earlier else name
    rule = step.method("loss")
    if step.group.filtered:
        words += f"; the filter {step.group.filtered} left it the loss's terms of each token alone"
        rule = step.group.filtered
    return reason_row(TokenReason.TRAINED, words, step.item, rule)


def _stale_row(step: BatchStep) -> ReasonRow:
    words = f"more than {step.limit} optimizer steps old in {step_name(step.commit.step)}"
    return reason_row(TokenReason.STALE, words, step.item, "stale")


def _unknown_row(step: BatchStep, session_id: str, file_here: bool) -> ReasonRow:
    name = step_name(step.commit.step)
    count = step.commit.trained_tokens.get(session_id, 0)
    words = f"{name} has its group and not this token; no record says which rule took it out"
    if count and not file_here:
        words = (
            f"{name} trained {count:,} tokens of the session; which ones stands in its file in "
            "trained/, which is not here"
        )
    return reason_row(TokenReason.UNKNOWN, words, step.item)


def _dropped_row(item: Received, dropped: r.GroupDropped) -> ReasonRow:
    if dropped.reason == "filtered":
        rule = dropped.detail.partition(";")[0]
        (_, _, more) = dropped.detail.partition("; ")
        words = f"its group was dropped by the filter {rule}" + (f" ({more})" if more else "")
        return reason_row(TokenReason.GROUP_FILTERED, words, item, rule)
    if dropped.reason == "stale":
        words = f"its group was dropped as stale: {dropped.detail}"
        return reason_row(TokenReason.STALE, words, item, "stale")
    words = f"its group was dropped ({dropped.reason}): {_last_line(dropped.detail)}"
    return reason_row(TokenReason.GROUP_DROPPED, words, item, dropped.reason)


def _last_line(text: str) -> str:
    return next(reversed(text.splitlines()), "")
