"""Names of all spans, attributes and metrics, one list each, with their meanings.

Any other name is a type error (spans) or a `KeyError` at start (metrics).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SpanName = Literal[
    "generate",  # rollout worker: one dispatch, from its arrival to its last token
    "load weights",  # rollout worker: pause, load, resume
    "train step",  # trainer: one optimizer step
    "publish weights",  # trainer: manifest written, event appended
    "run task",  # agents: one session of a task
]
"""Names for work within one process. Other spans are named by OpenTelemetry's rules: for example,
`POST /v1/messages` is a call to the gateway's route. `send requests` writes a record to the topic
`requests`, and `process requests` acts on such a record. The trainer's `process trajectories` acts
on one optimizer step's records.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of OpenTelemetry's conventions that the names follow; collectors translate by it."""
PROVIDER = "seamlessflow"
"""The models' provider, for spans that are calls or work for calls."""

ATTRIBUTES: Mapping[str, str] = {
    "session_id": "gen_ai.conversation.id",
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "choices": "gen_ai.request.choice.count",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "stream": "gen_ai.request.stream",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "turn_id": "gen_ai.response.id",
    "answered_by": "gen_ai.response.model",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "messaging": "messaging.system",
    "messaging_operation": "messaging.operation.name",
    "messaging_type": "messaging.operation.type",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "offset": "messaging.kafka.offset",
    "key": "messaging.kafka.message.key",
    "messages": "messaging.batch.message_count",
    "client": "messaging.client.id",
    "consumer_group": "messaging.consumer.group.name",
    "method": "http.request.method",
    "route": "http.route",
    "path": "url.path",
    "scheme": "url.scheme",
    "status": "http.response.status_code",
    "error": "error.type",
}
"""Attribute names in OpenTelemetry's conventions; all others get the prefix `seamlessflow.`."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric's kind, unit (UCUM, as in OpenTelemetry), meaning and labels."""

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

CONSUMER_LAG = "seamlessflow_kafka_consumer_lag"
UNREADABLE = "seamlessflow_kafka_unreadable_records_total"

METRICS: Mapping[str, MetricSpec] = {
    CONSUMER_LAG: MetricSpec(
        "gauge",
        "{record}",
        "Records that this process has not read yet, in a partition that it reads",
        ("topic", "partition"),
    ),
    UNREADABLE: MetricSpec(
        "counter",
        "{record}",
        "Records that this process read but could not decode: garbage, or from a newer release",
        ("topic",),
    ),
    "seamlessflow_gateway_requests_total": MetricSpec(
        "counter", "{request}", "Calls answered, by route and HTTP status", ("route", "status")
    ),
    "seamlessflow_gateway_request_seconds": MetricSpec(
        "histogram",
        "s",
        "Seconds from a call's arrival to the end of its answer",
        ("route",),
        _SECONDS,
    ),
    "seamlessflow_gateway_first_reply_seconds": MetricSpec(
        "histogram", "s", "Seconds from a streamed call's arrival to its first bytes", (), _SECONDS
    ),
    "seamlessflow_gateway_in_flight": MetricSpec("gauge", "{request}", "Calls in progress"),
    "seamlessflow_gateway_replies_ignored_total": MetricSpec(
        "counter",
        "{record}",
        "Replies that no call waited for, or that had been delivered before",
        ("reason",),
    ),
    "seamlessflow_gateway_turns_cancelled_total": MetricSpec(
        "counter", "{turn}", "Turns cancelled because their client went away for good"
    ),
    "seamlessflow_gateway_turns_undelivered_total": MetricSpec(
        "counter", "{turn}", "Turns that completed after their client had gone away for good"
    ),
    "seamlessflow_manager_events_total": MetricSpec(
        "counter",
        "{event}",
        "Events read back from the log, by type and by whether they counted",
        ("type", "accepted"),
    ),
    "seamlessflow_manager_matches_total": MetricSpec(
        "counter", "{turn}", "Turns started, by the rule that matched their history", ("rule",)
    ),
    "seamlessflow_manager_dispatches_total": MetricSpec(
        "counter", "{dispatch}", "Turns given to workers, by reason", ("reason",)
    ),
    "seamlessflow_manager_trajectories_total": MetricSpec(
        "counter", "{trajectory}", "Trajectories committed"
    ),
    "seamlessflow_manager_failures_total": MetricSpec(
        "counter",
        "{failure}",
        "Sessions given up, commands refused and trajectories emitted without tokens, each because "
        "of an error inside the manager",
        ("about",),
    ),
    "seamlessflow_manager_open_sessions": MetricSpec(
        "gauge", "{session}", "Open sessions, both in memory and spilled"
    ),
    "seamlessflow_manager_spilled_sessions": MetricSpec(
        "gauge", "{session}", "Idle open sessions whose state is in the spill file"
    ),
    "seamlessflow_manager_spilled_bytes": MetricSpec(
        "gauge", "By", "Size of the session states in the spill file"
    ),
    "seamlessflow_manager_spill_reads_total": MetricSpec(
        "counter", "{session}", "Spilled sessions read back into memory"
    ),
    "seamlessflow_rollout_turns_total": MetricSpec(
        "counter",
        "{turn}",
        "Turns that left a worker, by outcome (completed, interrupted or failed) and reason",
        ("outcome", "reason"),
    ),
    "seamlessflow_rollout_tokens_total": MetricSpec(
        "counter", "{token}", "Sampled tokens written to the log"
    ),
    "seamlessflow_rollout_verdicts_total": MetricSpec(
        "counter",
        "{turn}",
        "Turns that the control rule judged should end early, and whether it ended them (turns in "
        "exempt sessions go on)",
        ("ended",),
    ),
    "seamlessflow_rollout_controls_failed_total": MetricSpec(
        "counter", "{turn}", "Turns that went on without the control rule because it failed"
    ),
    "seamlessflow_rollout_prompts_ignored_total": MetricSpec(
        "counter",
        "{record}",
        "Records in a worker's slot that were not, or no longer, for this worker",
        ("reason",),
    ),
    "seamlessflow_rollout_records_lost_total": MetricSpec(
        "counter", "{record}", "Turn records that did not reach the log"
    ),
    "seamlessflow_trainer_steps": MetricSpec("gauge", "{step}", "Optimizer steps done"),
    "seamlessflow_trainer_metric": MetricSpec(
        "gauge",
        "1",
        "A training metric from the last step, by its name in metrics.csv",
        ("metric",),
    ),
    "seamlessflow_scheduler_decisions_total": MetricSpec(
        "counter", "{record}", "Records that the scheduler wrote, by type", ("type",)
    ),
    "seamlessflow_scheduler_stalls_total": MetricSpec(
        "counter",
        "{stall}",
        "Stalls that the scheduler reported, by the topic or process that it waits for",
        ("waited_for",),
    ),
    "seamlessflow_agents_tasks_total": MetricSpec(
        "counter", "{task}", "Tasks that ended, by how their agent ended", ("ending",)
    ),
    "seamlessflow_agents_left_total": MetricSpec(
        "counter", "{agent}", "Agents that were told to end but went on"
    ),
    "seamlessflow_judges_tries_total": MetricSpec(
        "counter",
        "{try}",
        "Tries by a judge, by how they ended: with a reward, by an outage, with an answer that is "
        "no reward (unreadable), or by another failure that counts",
        ("judge", "outcome"),
    ),
    "seamlessflow_judges_retries_total": MetricSpec(
        "counter", "{try}", "Tries by a judge after an earlier try for the same session", ("judge",)
    ),
    "seamlessflow_judges_seconds": MetricSpec(
        "histogram", "s", "Seconds that a judge's try took", ("judge",), _SECONDS
    ),
    "seamlessflow_judges_tokens_total": MetricSpec(
        "counter",
        "{token}",
        "Tokens that a model judge used, as its server counts them",
        ("judge", "kind"),
    ),
    "seamlessflow_judges_cached_total": MetricSpec(
        "counter",
        "{answer}",
        "Scores that a model judge already knew from an earlier answer",
        ("judge",),
    ),
    "seamlessflow_judges_disagreement": MetricSpec(
        "histogram",
        "1",
        "Difference between the largest and the smallest reward that a session's judges gave",
        (),
        (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5),
    ),
    "seamlessflow_judges_waiting": MetricSpec(
        "gauge", "{judgement}", "Judgements without a verdict on this reward worker"
    ),
    "seamlessflow_judges_refused_total": MetricSpec(
        "counter",
        "{reward}",
        "Judges' rewards that the manager refused, because their session had ended, was erased or "
        "is unknown",
        ("reason",),
    ),
    "seamlessflow_audit_rounds_total": MetricSpec(
        "counter", "{round}", "Rounds in which an audit read everything new and judged it"
    ),
    "seamlessflow_audit_checked": MetricSpec(
        "gauge",
        "{subject}",
        "Commands, turns, sessions, groups or tokens that passed a check",
        ("check",),
    ),
    "seamlessflow_audit_open": MetricSpec(
        "gauge",
        "{subject}",
        "Commands, turns, sessions, groups or tokens not judged yet, because they have not ended",
        ("check",),
    ),
    "seamlessflow_audit_not_checkable": MetricSpec(
        "gauge",
        "{subject}",
        "Commands, turns, sessions, groups or tokens not judged, because retention removed what "
        "the check needs",
        ("check",),
    ),
    "seamlessflow_audit_violations_total": MetricSpec(
        "counter", "{violation}", "Promises that the log breaks", ("check",)
    ),
}
