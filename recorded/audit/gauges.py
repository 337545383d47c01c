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
        for one in report.results:
            metrics.gauge("seamlessflow_audit_checked", check=one.check).set(one.checked)
            metrics.gauge("seamlessflow_audit_open", check=one.check).set(one.open)
            gone = metrics.gauge("seamlessflow_audit_not_checkable", check=one.check)
            gone.set(one.not_checkable)
            counter = metrics.counter("seamlessflow_audit_violations_total", check=one.check)
            counter.inc(one.violations - self._violations[one.check])
            self._violations[one.check] = one.violations
