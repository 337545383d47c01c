"""An audit's checks, fed with records from all topics in any order, and their report.

Pure but for files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.recorded.audit.invariants.commands import CommandsCheck
from seamlessflow.recorded.audit.invariants.evidence import Kept, Owners
from seamlessflow.recorded.audit.invariants.groups import GroupsCheck
from seamlessflow.recorded.audit.invariants.ledger import Violation
from seamlessflow.recorded.audit.invariants.sessions import SessionsCheck
from seamlessflow.recorded.audit.invariants.tokens import TokensCheck
from seamlessflow.recorded.audit.invariants.turns import TurnsCheck
from seamlessflow.recorded.audit.rounds import ManagersProgress
from seamlessflow.recorded.audit.sampled_tokens import SampledSession
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS

AuditCheck = CommandsCheck | TurnsCheck | SessionsCheck | GroupsCheck | TokensCheck


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check's result."""

    check: str
    checked: int
    open: int
    """Subjects that are not over yet at the captured ends; they are no violations."""
    not_checkable: int
    """Subjects that were not checked, since retention removed records that the check needs."""
    violations: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of all checks at the captured topic ends."""

    results: tuple[CheckResult, ...]
    violations: tuple[Violation, ...]
    """Violations with their places; at most the first thousand from each check."""
    records: int
    """Count of records that were read."""
    notices: Sequence[str] = ()
    """Sentences about records that could not be read."""
    complete: bool = True
    """False if a record that counts could not be read, so that no check had it."""

    @property
    def clean(self) -> bool:
        """True if every record that counts was read and no check found a violation."""
        return self.complete and not any(result.violations for result in self.results)

    def result(self, check: str) -> CheckResult:
        """Return the result for the check with this name. Raises `KeyError`."""
        return {result.check: result for result in self.results}[check]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "clean": self.clean,
            "complete": self.complete,
            "records": self.records,
            "checks": {
                result.check: {
                    "checked": result.checked,
                    "open": result.open,
                    "not_checkable": result.not_checkable,
                    "violations": result.violations,
                }
                for result in self.results
            },
            "violations": [
                {"check": violation.check, **violation.place._asdict(), "detail": violation.detail}
                for violation in self.violations
            ],
            "notices": list(self.notices),
        }


@dataclass(slots=True)
class _Finish:
    """A run's finish: all its policies made their steps, so nothing is under way any more.

    A fold of `control`. A run that is resumed for further steps starts a new lineage, so it is not
    finished until that lineage's end.
    """

    _of_policies: dict[str, bool] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Fold in a record."""
        match record:
            case r.LineageStarted():
                self._of_policies[record.policy] = False
            case r.RunFinished():
                self._of_policies[record.policy] = True

    @property
    def reached(self) -> bool:
        """True if each policy's newest lineage has ended with its last step."""
        return bool(self._of_policies) and all(self._of_policies.values())


class Auditor:
    """Folds for all checks. `partitions`: the partition count of `sessions`.

    Trained tokens are only checked if their directory is given. `most_tokens`: see `TokensCheck`.
    If `recorded`, the run trains on another run's trajectories, and that run has the events.
    """

    def __init__(
        self,
        partitions: int,
        trained: Path | None,
        most_tokens: int | None = None,
        recorded: bool = False,
    ) -> None:
        self._kept = Kept()
        self._owners = Owners()
        self._finish = _Finish()
        if recorded:
            self._kept.leave(SESSIONS.name)
        self._commands = CommandsCheck(self._kept)
        self._turns = TurnsCheck(self._kept, self._owners, partitions)
        self._sessions = SessionsCheck(self._kept, self._owners)
        self._groups = GroupsCheck(self._kept, recorded)
        self._tokens = None
        of_events: list[AuditCheck] = [] if recorded else [self._commands, self._turns]
        self._checks: list[AuditCheck] = [*of_events, self._sessions, self._groups]
        if trained is not None:
            self._tokens = TokensCheck(self._kept, trained, partitions, most_tokens, recorded)
            self._checks.append(self._tokens)
        self._records = 0

    def cut(self, partition: LogPartition) -> None:
        """Note that retention removed records from the partition before they were read."""
        self._kept.cut(partition)

    def apply(self, received: Received) -> None:
        """Fold in a record; a partition's records come in order."""
        self._records += 1
        self._kept.apply(received)
        self._finish.apply(received.record)
        # An event from a manager that had lost the partition counts for no check.
        if received.topic != SESSIONS.name or self._owners.apply(received):
            for check in self._checks:
                check.apply(received)

    def stored_wanted(self) -> tuple[dict[str, str], frozenset[str]]:
        """Return the pools' prefixes, and the stored sessions in other logs to compare with."""
        if self._tokens is None:
            return {}, frozenset()
        return self._tokens.prefixes, self._tokens.wanted()

    def store(self, sessions: Iterable[tuple[str, SampledSession]]) -> None:
        """Take stored sessions from other logs, by name."""
        if self._tokens is not None:
            self._tokens.stored.update(sessions)

    def settle(self, progress: ManagersProgress) -> None:
        """Judge all that the records so far say; `progress` was measured before they were read."""
        self._commands.settle(progress.requests)
        self._turns.settle()
        self._sessions.settle(progress.covered)
        self._groups.settle()
        if self._tokens is not None:
            self._tokens.settle()

    def end(self) -> None:
        """Judge what is open: no process of the run lives, so in a finished run all must be over.

        Called after the last `settle`. A run that was only stopped may go on.
        """
        if self._finish.reached:
            self._turns.end()
            self._sessions.end()

    def report(self, notices: list[str], complete: bool = True) -> AuditReport:
        """Return what was found up to the last `settle`; `complete`: see `AuditReport`."""
        results = [
            CheckResult(
                findings.check, findings.checked, check.open, findings.not_checkable, findings.count
            )
            for check in self._checks
            for findings in (check.findings,)
        ]
        violations = chain.from_iterable(check.findings.violations for check in self._checks)
        return AuditReport(tuple(results), tuple(violations), self._records, notices, complete)
