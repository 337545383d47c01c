"""Training as the manager sees it on `control`: sessions' fates, and ends of runs.

Two folds that begin with the manager and are used on its main thread. A finalized session has left
the manager's memory, and its trajectory belongs to the trainer. `SessionFates` keeps what the
trainer did with the newest sessions, for questions about a session (`seamlessflow show` knows all).

When a run has finished, the manager closes sessions that their agents leave open. `RunEnds` says
when. An agent may have given up a call that the manager carried out later. That agent would never
close the session.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import shown_step, trained_sessions

KEPT = 10_000
"""Number of sessions, and of groups, whose fate is kept."""
GRACE_MS = 60_000
"""Time that agents have to close their sessions themselves."""
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class FinalizedSession:
    """A session's place in its group, and its end."""

    group_id: str
    sample: int
    attempt: int
    status: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupFate:
    """The newest decision about a group: `ready`, `dropped` or `trained`."""

    state: str
    detail: str = ""
    step: int | None = None
    sessions: frozenset[str] = frozenset()
    """A trained group's sessions that have a token in the loss."""
    filtered: str = ""
    """Filter that took a trained group's advantages away."""


@dataclass(slots=True)
class SessionFates:
    """The sessions' fates by id. Used on the manager's main thread."""

    _finalized: OrderedDict[str, FinalizedSession] = field(default_factory=OrderedDict)
    _groups: OrderedDict[str, GroupFate] = field(default_factory=OrderedDict)
    _failed: OrderedDict[tuple[str, int, int], str] = field(default_factory=OrderedDict)

    def note_finalized(
        self, opened: r.SessionOpened, closed: r.SessionClosed | None, at_ms: int
    ) -> None:
        """Note that a session was finalized at this time."""
        end = ("", "") if closed is None else (closed.status, closed.reason)
        group_id = opened.group_id or opened.session_id
        place = FinalizedSession(group_id, opened.sample, opened.attempt, *end, at_ms)
        _keep(self._finalized, opened.session_id, place)

    def why_pruned(self, session_id: str) -> str:
        """Return why a session was pruned, or an empty string if it was not."""
        ended = self._finalized.get(session_id)
        return ended.reason if ended is not None and ended.status == "pruned" else ""

    def apply(self, record: Record) -> None:
        """Apply a record from `control`."""
        match record:
            case r.GroupReady():
                _keep(self._groups, record.group_id, GroupFate("ready"))
            case r.GroupDropped():
                detail = f"{record.reason}: {record.detail}" if record.detail else record.reason
                _keep(self._groups, record.group_id, GroupFate("dropped", detail))
            case r.StepCommitted():
                for group in record.groups:
                    _keep(self._groups, group.group_id, _fate_in_step(record, group))
            case r.SampleFailed():
                place = (record.group_id, record.sample, record.attempt)
                _keep(self._failed, place, f"{record.cause}: {record.detail}")

    def describe(self, session_id: str) -> Mapping[str, Any]:
        """Return members for a finalized session's description, or none if it is unknown."""
        ended = self._finalized.get(session_id)
        if ended is None:
            return {}
        place = (ended.group_id, ended.sample, ended.attempt)
        described = {
            "group_id": ended.group_id,
            "sample": ended.sample,
            "attempt": ended.attempt,
            "closed": {"status": ended.status, "reason": ended.reason},
            "finalized_at_ms": ended.at_ms,
        }
        if (why := self._failed.get(place)) is not None:
            return {**described, "training": {"state": "not_counted", "detail": why}}
        return {**described, "training": self._training(session_id, ended.group_id)}

    def _training(self, session_id: str, group_id: str) -> Mapping[str, Any]:
        fate = self._groups.get(group_id)
        if fate is None:
            return {"state": "waiting", "detail": "its group is not complete"}
        if fate.state == "ready":
            return {"state": "ready", "detail": "its group waits for a step"}
        if fate.step is None:
            return {"state": fate.state, "detail": fate.detail}
        return _in_step(session_id in fate.sessions, shown_step(fate.step), fate.filtered)


@dataclass(slots=True)
class RunEnds:
    """The policies whose run has finished. Used on the manager's main thread."""

    grace_ms: int = GRACE_MS
    """Time to close sessions; 0 once the manager must end, as the run's agents ended before."""
    frozen: set[str] = field(default_factory=set)
    """Policies that are not trained: their weights say so, and their runs never finish."""
    _finished: dict[str, int] = field(default_factory=dict)
    """Finishing time by policy."""
    _went_on_ms: int = 0
    """When the newest training group was admitted."""
    _players: set[str] = field(default_factory=set)
    """Policies that play roles in the same episodes."""

    @property
    def finished_ms(self) -> int | None:
        """The newest time when a policy's run finished, or None while the run goes on."""
        newest_ms = max(self._finished.values(), default=0)
        return newest_ms if newest_ms > self._went_on_ms else None

    def apply(self, record: Record) -> None:
        """Apply a record from `control` or `fleet`."""
        match record:
            case r.PolicyWeights(frozen=True):
                self.frozen.add(record.policy)
            case r.RunFinished():
                self._finished[record.policy] = record.at_ms
            # The run goes on, for another policy or with more steps.
            case r.GroupAdmitted() if record.purpose != "eval":
                self._went_on_ms = max(self._went_on_ms, record.at_ms)
                self._players |= {role.policy for role in record.roles}

    def due_ms(self, opened: r.SessionOpened) -> int | None:
        """Return when to close a session that is still open, or None to leave it open.

        It stays open while its run goes on, and if it belongs to no run.
        """
        finished_ms = self.finished_ms
        named = {opened.policy, *opened.policies.values()}
        # An episode goes on until the last policy in it has finished.
        players = self._players if named & self._players else set()
        trained = (named | players) - self.frozen
        if finished_ms is None or not _of_run(opened) or not trained <= self._finished.keys():
            return None
        return finished_ms + self.grace_ms


def _fate_in_step(commit: r.StepCommitted, group: r.StepGroup) -> GroupFate:
    sessions = trained_sessions(commit, group)
    return GroupFate("trained", step=commit.step, sessions=sessions, filtered=group.filtered)


def _in_step(trained: bool, step: int, filtered: str) -> Mapping[str, Any]:
    """Return what a step did with a session in its batch."""
    if trained:
        without = {"detail": f"without advantages, by the filter {filtered}"} if filtered else {}
        return {"state": "trained", "step": step, **without}
    if filtered:
        detail = f"the filter {filtered} kept its group out of the loss"
        return {"state": "filtered", "step": step, "detail": detail}
    detail = "none of its tokens was in the loss: stale or masked"
    return {"state": "masked", "step": step, "detail": detail}


def _keep(kept: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep a value as the newest one, and forget the oldest beyond `KEPT`."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _of_run(opened: r.SessionOpened) -> bool:
    """Return True for a session that a training or exploration task began, by its agent's id.

    Services name their sessions differently. An evaluation may follow the run's end, so it does not
    count.
    """
    named = session_id(opened.group_id, opened.sample, opened.attempt)
    return opened.purpose != "eval" and bool(opened.group_id) and opened.session_id == named
