"""Alerts for the runbooks' symptoms, as Prometheus rules. Pure.

Each names the page that says what to do. A symptom that no metric shows has no alert.
"""

from dataclasses import dataclass
from typing import Any

_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Alert:
    """A query that returns lines while something is wrong, and the page about it."""

    name: str
    query: str
    minutes: int
    """Minutes that it must last."""
    summary: str
    page: str
    """Path in the repository, with the heading's anchor."""
    severity: str = "warning"


ALERTS = (
    Alert(
        "ProcessDown",
        'up{job="seamlessflow"} == 0',
        1,
        "{{ $labels.instance }} answers no scrape: it crashed, or its host is away",
        "runbooks/crash-recovery.md",
        "critical",
    ),
    Alert(
        "PromiseBroken",
        "increase(seamlessflow_audit_violations_total[10m]) > 0",
        0,
        "the log breaks the promise {{ $labels.check }}",
        "docs/audit.md",
        "critical",
    ),
    Alert(
        "LagGrows",
        "sum by (topic) (seamlessflow_kafka_consumer_lag) > 1000"
        " and sum by (topic) (deriv(seamlessflow_kafka_consumer_lag[5m])) > 0",
        _MINUTES,
        "readers of {{ $labels.topic }} are {{ $value }} records behind, and fall back further",
        "runbooks/lag.md",
    ),
    Alert(
        "NoStep",
        "sum(increase(seamlessflow_scheduler_stalls_total[10m])) by (waited_for) > 0",
        0,
        "nothing moves: the scheduler waits for {{ $labels.waited_for }}",
        "runbooks/stuck-worker.md",
    ),
    Alert(
        "CallsFail",
        'sum(rate(seamlessflow_gateway_requests_total{status=~"5.."}[5m])) > 0.05'
        " * sum(rate(seamlessflow_gateway_requests_total[5m]))",
        _MINUTES,
        "{{ $value | humanize }} calls a second end with an error of the server",
        "docs/gateway.md#answers-of-503",
    ),
    Alert(
        "CallsRefused",
        'sum(rate(seamlessflow_gateway_requests_total{status="429"}[5m])) > 0',
        _MINUTES,
        "agents are refused: more calls are under way than the gateway takes",
        "runbooks/scale-consumers.md",
    ),
    Alert(
        "UnreadableRecords",
        "increase(seamlessflow_kafka_unreadable_records_total[10m]) > 0",
        0,
        "records of {{ $labels.topic }} cannot be read: garbage, or of a newer release",
        "runbooks/dead-letters.md",
    ),
    Alert(
        "SessionsGivenUp",
        "increase(seamlessflow_manager_failures_total[10m]) > 0",
        0,
        "the manager gave up {{ $labels.about }} for an error of its own",
        "docs/manager/failures.md",
    ),
    Alert(
        "RecordsLost",
        "increase(seamlessflow_rollout_records_lost_total[10m]) > 0",
        0,
        "records of turns did not reach the log; their turns go on elsewhere",
        "runbooks/crash-recovery.md",
    ),
    Alert(
        "AgentsFail",
        'sum(increase(seamlessflow_agents_tasks_total{ending=~"Crashed|TimedOut"}[10m]))'
        " > 0.5 * sum(increase(seamlessflow_agents_tasks_total[10m]))",
        _MINUTES,
        "more than half of the tasks end by a crash or their deadline",
        "docs/trainer/failures.md",
    ),
    Alert(
        "JudgesFail",
        'sum by (judge) (rate(seamlessflow_judges_tries_total{outcome!="reward"}[10m]))'
        " > 0.5 * sum by (judge) (rate(seamlessflow_judges_tries_total[10m]))",
        _MINUTES,
        "more than half of the tries of the judge {{ $labels.judge }} fail",
        "docs/agents/judges.md",
    ),
    Alert(
        "StatesSpill",
        "rate(seamlessflow_manager_spill_reads_total[5m])"
        " > 0.5 * rate(seamlessflow_manager_matches_total[5m])",
        _MINUTES,
        "sessions in use do not fit into the manager's memory",
        "runbooks/metrics.md",
    ),
)


def rule_group() -> dict[str, Any]:
    """Return the rules file that Prometheus reads, to be written as YAML."""
    return {"groups": [{"name": "seamlessflow", "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": f"SeamlessFlow{alert.name}",
        "expr": alert.query,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": alert.page},
    }
