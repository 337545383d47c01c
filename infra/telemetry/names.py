"""Names of all spans, attributes and metrics, one list each, with their meanings.

Any other name is a type error (spans) or a `KeyError` at start (metrics).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SpanName = Literal[
    "chat",  # gateway: one call of an agent, from its arrival to the last byte of the answer
    "command",  # gateway: one session command (open, reward, close), until it is answered
    "process requests",  # manager: one command is matched and decided
    "process sessions",  # manager: one event is folded, records that follow are sent
    "generate",  # rollout worker: one dispatch, from its arrival to its last token
    "finalize session",  # manager: a trajectory is built
    "load weights",  # rollout worker: pause, load, resume
    "train step",  # trainer: one optimizer step
    "publish weights",  # trainer: manifest written, event appended
    "run task",  # agents: one session of a task
]

ATTRIBUTES: Mapping[str, str] = {
    "session_id": "gen_ai.conversation.id",
    "turn_id": "gen_ai.response.id",
    "model": "gen_ai.request.model",
    "operation": "gen_ai.operation.name",
    "finish_reason": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "offset": "messaging.kafka.offset",
    "status": "http.response.status_code",
}
"""Attribute names of OpenTelemetry's conventions; all others get the prefix `seamlessflow.`."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Kind, meaning and labels of a metric; `buckets` in the metric's unit."""

    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

METRICS: Mapping[str, MetricSpec] = {
    "seamlessflow_gateway_requests_total": MetricSpec(
        "counter", "Calls answered, by route and HTTP status", ("route", "status")
    ),
    "seamlessflow_gateway_request_seconds": MetricSpec(
        "histogram", "From a call's arrival to the end of its answer", ("route",), _SECONDS
    ),
    "seamlessflow_gateway_first_reply_seconds": MetricSpec(
        "histogram", "From a streamed call's arrival to its first bytes", (), _SECONDS
    ),
    "seamlessflow_gateway_in_flight": MetricSpec("gauge", "Calls in progress"),
    "seamlessflow_gateway_replies_ignored_total": MetricSpec(
        "counter", "Replies that no call waited for, or that were delivered before", ("reason",)
    ),
    "seamlessflow_gateway_turns_cancelled_total": MetricSpec(
        "counter", "Turns cancelled because their client went away and did not come back"
    ),
    "seamlessflow_manager_events_total": MetricSpec(
        "counter",
        "Events read back from the log, by type and whether they counted",
        ("type", "accepted"),
    ),
    "seamlessflow_manager_matches_total": MetricSpec(
        "counter", "Turns started, by the rule that matched their history", ("rule",)
    ),
    "seamlessflow_manager_dispatches_total": MetricSpec(
        "counter", "Turns given to workers, by reason", ("reason",)
    ),
    "seamlessflow_manager_trajectories_total": MetricSpec("counter", "Trajectories committed"),
    "seamlessflow_manager_open_sessions": MetricSpec("gauge", "Sessions held in memory"),
    "seamlessflow_rollout_turns_total": MetricSpec(
        "counter",
        "Turns that left a worker: completed, interrupted or failed, and why",
        ("outcome", "reason"),
    ),
    "seamlessflow_rollout_tokens_total": MetricSpec("counter", "Sampled tokens written"),
    "seamlessflow_rollout_prompts_ignored_total": MetricSpec(
        "counter", "Records of a slot that were not, or no longer, for this worker", ("reason",)
    ),
    "seamlessflow_rollout_records_lost_total": MetricSpec(
        "counter", "Records of turns that did not reach the log"
    ),
    "seamlessflow_trainer_steps": MetricSpec("gauge", "Optimizer steps that are done"),
    "seamlessflow_trainer_metric": MetricSpec(
        "gauge", "A training metric of the last step, by its name in metrics.csv", ("metric",)
    ),
    "seamlessflow_scheduler_decisions_total": MetricSpec(
        "counter", "Records the scheduler wrote, by type", ("type",)
    ),
    "seamlessflow_agents_tasks_total": MetricSpec(
        "counter", "Tasks that ended, by how their agent ended", ("ending",)
    ),
}
