"""An audit on the terminal: new violations as lines, the counts as a table at the end."""

import json
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.recorded.audit.gauges import AuditMetrics
from seamlessflow.recorded.audit.report import AuditReport
from seamlessflow.recorded.audit.table import audit_table

MOST_LINES = 20
"""Most violations of each check that are printed; `--json` has a thousand."""


class Printing:
    """Printer of the reports of one audit. A context manager."""

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console, self._as_json = console, as_json
        self._metrics = Metrics()
        self._shown = AuditMetrics(self._metrics)
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
        """Print the violations that are new in a report."""
        self._last = report
        self._shown.show(report)
        for result in report.results:
            violations = [
                violation for violation in report.violations if violation.check == result.check
            ]
            before = self._printed.get(result.check, 0)
            for violation in violations[before:MOST_LINES]:
                self._print(str(violation), "red")
            self._printed[result.check] = min(len(violations), MOST_LINES)

    def finish(self) -> bool:
        """Print the last report; return True if it is clean, False also if there is none."""
        report = self._last
        if self._as_json and report is not None:
            print(json.dumps(report.to_json(), ensure_ascii=False))
        elif report is not None:
            self._console.print(audit_table(report))
            for notice in report.notices:
                self._print(f"! {notice}", "yellow")
        return report is not None and report.clean

    def _print(self, line: str, style: str = "") -> None:
        if not self._as_json:
            self._console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
