"""Result of an audit. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.recorded.audit.checks.findings import Violation


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    check: str
    checked: int
    open: int
    """Subjects that are not over yet at the captured ends; no violations."""
    not_checkable: int
    """Subjects of which retention removed what the check needs; not passed."""
    violations: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of all checks, as of the topic ends that were captured."""

    results: tuple[CheckResult, ...]
    violations: tuple[Violation, ...]
    """Violations with their places; of each check the first thousand."""
    records: int
    """Number of records that were read."""
    notices: Sequence[str] = ()
    """Sentences about records that could not be read."""
    complete: bool = True
    """False if a record that counts could not be read, so that it was in no check."""

    @property
    def clean(self) -> bool:
        """True if every record that counts was read and no check found a violation."""
        return self.complete and not any(result.violations for result in self.results)

    def result(self, check: str) -> CheckResult:
        """Return the result of the check with this name. Raises `KeyError`."""
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
