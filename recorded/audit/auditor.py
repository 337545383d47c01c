"""All checks of an audit, fed with records of all topics in any order. Pure but for files."""

from itertools import chain
from pathlib import Path

from seamlessflow.infra.kafka.client import Partition, Received
from seamlessflow.recorded.audit.checks.commands import CommandsCheck
from seamlessflow.recorded.audit.checks.finish import Finish
from seamlessflow.recorded.audit.checks.groups import GroupsCheck
from seamlessflow.recorded.audit.checks.kept import Kept
from seamlessflow.recorded.audit.checks.owners import Owners
from seamlessflow.recorded.audit.checks.sessions import SessionsCheck
from seamlessflow.recorded.audit.checks.tokens import TokensCheck
from seamlessflow.recorded.audit.checks.turns import TurnsCheck
from seamlessflow.recorded.audit.report import AuditReport, CheckResult
from seamlessflow.recorded.audit.rounds import ManagersProgress
from seamlessflow.schemas.topics import SESSIONS

Check = CommandsCheck | TurnsCheck | SessionsCheck | GroupsCheck | TokensCheck


class Auditor:
    """Folds for all checks. `partitions` counts those of `sessions`.

    Without a directory of trained tokens these are not checked. `most_tokens`: see `TokensCheck`.
    If `recorded`, the run trains on another run's trajectories, and that run has the events.
    """

    def __init__(
        self,
        partitions: int,
        trained: Path | None,
        most_tokens: int | None = None,
        recorded: bool = False,
    ) -> None:
        self._kept, self._owners, self._finish = Kept(), Owners(), Finish()
        if recorded:
            self._kept.leave(SESSIONS.name)
        self._commands = CommandsCheck(self._kept)
        self._turns = TurnsCheck(self._kept, self._owners, partitions)
        self._sessions = SessionsCheck(self._kept, self._owners)
        self._groups = GroupsCheck(self._kept, recorded)
        self._tokens = None
        of_events: list[Check] = [] if recorded else [self._commands, self._turns]
        self._checks: list[Check] = [*of_events, self._sessions, self._groups]
        if trained is not None:
            self._tokens = TokensCheck(self._kept, trained, partitions, most_tokens, recorded)
            self._checks.append(self._tokens)
        self._records = 0

    def cut(self, partition: Partition) -> None:
        """Note that retention removed records of the partition before they were read."""
        self._kept.cut(partition)

    def apply(self, received: Received) -> None:
        """Fold in a record; records of a partition come in its order."""
        self._records += 1
        self._kept.apply(received)
        self._finish.apply(received.record)
        # An event of a manager that had lost the partition counts for no check.
        if received.topic != SESSIONS.name or self._owners.apply(received):
            for check in self._checks:
                check.apply(received)

    def settle(self, progress: ManagersProgress) -> None:
        """Judge all that the records up to here say; `progress` is of before they were read."""
        self._commands.settle(progress.requests)
        self._turns.settle()
        self._sessions.settle(progress.covered)
        self._groups.settle()
        if self._tokens is not None:
            self._tokens.settle()

    def end(self) -> None:
        """Judge what is open: no process of the run lives, so if it is finished all must be over.

        Called behind the last `settle`. A run that was only stopped may go on.
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
