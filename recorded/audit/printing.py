"""An audit on the terminal, violations as lines and counts as a table, and as metrics."""

import json
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.table import Table

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.recorded.audit.auditor import AuditReport

MOST_LINES = 20
"""Most violations that are printed for each check; `--json` has a thousand."""
_CAPTION = "open: not over yet\nnot checkable: retention removed what it needs"


class _AuditMetrics:
    """The last report's counts as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._violations: Counter[str] = Counter()

    def show(self, report: AuditReport) -> None:
        """Show one more round's report."""
        metrics = self._metrics
        metrics.counter("seamlessflow_audit_rounds_total").inc()
        for result in report.results:
            metrics.gauge("seamlessflow_audit_checked", check=result.check).set(result.checked)
            metrics.gauge("seamlessflow_audit_open", check=result.check).set(result.open)
            gone = metrics.gauge("seamlessflow_audit_not_checkable", check=result.check)
            gone.set(result.not_checkable)
            counter = metrics.counter("seamlessflow_audit_violations_total", check=result.check)
            counter.inc(result.violations - self._violations[result.check])
            self._violations[result.check] = result.violations


class Printing:
    """Printer for one audit's reports. A context manager."""

    def __init__(self, console: Console, as_json: bool, each: bool = False) -> None:
        """Print for a terminal or as JSON; `each`: JSON for each report, not only for the last."""
        self._console = console
        self._as_json = as_json
        self._each = each
        self._line = ""
        self._metrics = Metrics()
        self._shown = _AuditMetrics(self._metrics)
        self._printed: dict[str, int] = {}
        self._last: AuditReport | None = None
        self._end_serving: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._end_serving is not None:
            self._end_serving()

    def serve(self, port: int) -> None:
        """Serve the metrics on loopback. Raises `SettingsRejected` if the port is taken."""
        try:
            served, self._end_serving = self._metrics.serve(HOST, port)
        except OSError as error:
            raise SettingsRejected("--metrics-port", f"{HOST}:{port}: {error.strerror}") from error
        self._print(f"metrics at http://{HOST}:{served}/metrics")

    def update(self, report: AuditReport) -> None:
        """Print the violations that a report adds."""
        self._last = report
        self._shown.show(report)
        if self._as_json and self._each:
            self._print_json(report)
        for result in report.results:
            violations = [
                violation for violation in report.violations if violation.check == result.check
            ]
            before = self._printed.get(result.check, 0)
            for violation in violations[before:MOST_LINES]:
                self._print(str(violation), "red")
            self._printed[result.check] = min(len(violations), MOST_LINES)

    def finish(self) -> bool:
        """Print the last report. Return True if it is clean, False if not or without a report."""
        report = self._last
        if self._as_json and report is not None:
            self._print_json(report)
        elif report is not None:
            self._console.print(_audit_table(report))
            for notice in report.notices:
                self._print(f"! {notice}", "yellow")
        return report is not None and report.clean

    def _print_json(self, report: AuditReport) -> None:
        line = json.dumps(report.to_json(), ensure_ascii=False)
        if line != self._line:
            print(line, flush=True)
        self._line = line

    def _print(self, line: str, style: str = "") -> None:
        if not self._as_json:
            self._console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def _audit_table(report: AuditReport) -> Table:
    """Return the results of all checks as a table."""
    shown = Table("check", "checked", "open", "not checkable", "violations", caption=_CAPTION)
    for column in range(1, 5):
        shown.columns[column].justify = "right"
    for result in report.results:
        counts = (result.checked, result.open, result.not_checkable, result.violations)
        style = "red" if result.violations else ""
        shown.add_row(result.check, *(f"{count:,}" for count in counts), style=style)
    return shown
