"""Metrics of an audit that follows a running system."""

from collections import Counter

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.recorded.audit.report import AuditReport


class AuditMetrics:
    """Counts of the last report as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._violations: Counter[str] = Counter()

    def show(self, report: AuditReport) -> None:
        """Show the report of one more round."""
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
