"""Ends of runs: a session of a run that has finished is closed if its agent does not do so.

Its agent may have given a call up that the manager carried out later, so no one would close it. A
fold of `control` that begins with the manager. Called by `deadlines.py`; kept by `manager.py`.
"""

from dataclasses import dataclass, field

from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import GroupAdmitted, Record, RunFinished, SessionOpened

GRACE_MS = 60_000
"""Time in which agents may close their sessions themselves."""


@dataclass(slots=True)
class RunEnds:
    """The policies whose run has finished. Used on the manager's main thread."""

    grace_ms: int = GRACE_MS
    """0 once the manager was asked to end: the agents of its run ended before it."""
    _finished: dict[str, int] = field(default_factory=dict)
    """Time by policy."""
    _went_on_ms: int = 0
    """Time of the newest group of training."""

    @property
    def finished_ms(self) -> int | None:
        """The newest time at which the run of a policy finished; None while it goes on."""
        newest_ms = max(self._finished.values(), default=0)
        return newest_ms if newest_ms > self._went_on_ms else None

    def apply(self, record: Record) -> None:
        """Apply a record of `control`."""
        match record:
            case RunFinished():
                self._finished[record.policy] = record.at_ms
            case GroupAdmitted(purpose="train"):  # it goes on, for another policy or more steps
                self._went_on_ms = max(self._went_on_ms, record.at_ms)

    def due_ms(self, opened: SessionOpened) -> int | None:
        """Return when to close a session that is still open; None if it goes on, or is no run's."""
        finished_ms, called = self.finished_ms, {opened.policy, *opened.policies.values()}
        if finished_ms is None or not _of_run(opened) or not called <= self._finished.keys():
            return None
        return finished_ms + self.grace_ms


def _of_run(opened: SessionOpened) -> bool:
    """Return True for a session that a task of training began, by the id that its agent gives it.

    Services name theirs otherwise. An evaluation may follow the end.
    """
    named = session_id(opened.group_id, opened.sample, opened.attempt)
    return opened.purpose == "train" and bool(opened.group_id) and opened.session_id == named
