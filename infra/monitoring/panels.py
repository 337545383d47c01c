"""A run's boards: what each panel asks Prometheus, in its query language. Pure data.

`telemetry/names.py` says what the metrics mean.
"""

from dataclasses import dataclass

_RANGE = "$__rate_interval"
"""Grafana's own variable: long enough for a rate between two scrapes."""


@dataclass(frozen=True, slots=True)
class Series:
    """A query, and the name for its lines in Grafana's form (`{{label}}`)."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture with some curves; `unit` has Grafana's name."""

    title: str
    unit: str
    curves: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A page of panels; `uid` is its address in Grafana and its file's name."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{more}[{_RANGE}]))"


def _quantile(share: float, histogram: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, {_rate(f'{histogram}_bucket', by)})"


def _latest(metric: str, legend: str = "") -> Series:
    """Return the curve for a training step's figure, by its name in metrics.csv."""
    return Series(f'seamlessflow_trainer_metric{{metric="{metric}"}}', legend or metric)


def _panel(title: str, unit: str, *curves: Series) -> Panel:
    return Panel(title, unit, curves)


DATA_PLANE = Board(
    "seamlessflow-data-plane",
    "SeamlessFlow: data plane",
    (
        _panel(
            "Calls a second",
            "reqps",
            Series(_rate("seamlessflow_gateway_requests_total", "status"), "{{status}}"),
        ),
        _panel("Calls in progress", "short", Series("seamlessflow_gateway_in_flight", "gateway")),
        _panel(
            "Time of a call",
            "s",
            Series(_quantile(0.5, "seamlessflow_gateway_request_seconds"), "median"),
            Series(_quantile(0.99, "seamlessflow_gateway_request_seconds"), "99th percentile"),
        ),
        _panel(
            "Sampled tokens a second",
            "short",
            Series(_rate("seamlessflow_rollout_tokens_total", "instance"), "{{instance}}"),
        ),
        _panel(
            "Turns that left a worker, a second",
            "ops",
            Series(
                _rate("seamlessflow_rollout_turns_total", "outcome, reason"),
                "{{outcome}} {{reason}}",
            ),
        ),
        _panel(
            "Rules that matched turns, a second",
            "ops",
            Series(_rate("seamlessflow_manager_matches_total", "rule"), "{{rule}}"),
        ),
        _panel(
            "Open sessions",
            "short",
            Series("sum(seamlessflow_manager_open_sessions)", "open"),
            Series("sum(seamlessflow_manager_spilled_sessions)", "spilled"),
        ),
        _panel(
            "Trajectories a second",
            "ops",
            Series(_rate("seamlessflow_manager_trajectories_total", "instance"), "{{instance}}"),
        ),
    ),
)

CONTROL_PLANE = Board(
    "seamlessflow-control-plane",
    "SeamlessFlow: control plane",
    (
        _panel(
            "Records of the scheduler, a second",
            "ops",
            Series(_rate("seamlessflow_scheduler_decisions_total", "type"), "{{type}}"),
        ),
        _panel(
            "Stalls",
            "short",
            Series("sum by (waited_for) (seamlessflow_scheduler_stalls_total)", "{{waited_for}}"),
        ),
        _panel(
            "Turns given to workers, a second",
            "ops",
            Series(_rate("seamlessflow_manager_dispatches_total", "reason"), "{{reason}}"),
        ),
        _panel(
            "Tasks that ended, a second",
            "ops",
            Series(_rate("seamlessflow_agents_tasks_total", "ending"), "{{ending}}"),
        ),
        _panel(
            "CPU of each process",
            "percentunit",
            Series(_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),
        ),
        _panel(
            "Memory of each process",
            "bytes",
            Series("process_resident_memory_bytes", "{{instance}}"),
        ),
    ),
)

TRAINING = Board(
    "seamlessflow-training",
    "SeamlessFlow: training",
    (
        _panel("Steps", "short", Series("seamlessflow_trainer_steps", "steps")),
        _panel("Reward", "short", _latest("reward_mean", "mean")),
        _panel(
            "Seconds of a step",
            "s",
            *(
                _latest(name)
                for name in ("batch_s", "wait_s", "annotate_s", "advantages_s", "update_s")
            ),
        ),
        _panel("Trained tokens a second", "short", _latest("tokens_per_s")),
        _panel("Gradient norm", "short", _latest("grad_norm")),
        _panel("Loss", "short", _latest("loss")),
    ),
)

KAFKA = Board(
    "seamlessflow-kafka",
    "SeamlessFlow: Kafka",
    (
        _panel(
            "Lag of each topic",
            "short",
            Series("sum by (topic) (seamlessflow_kafka_consumer_lag)", "{{topic}}"),
        ),
        _panel(
            "Largest lag of a partition",
            "short",
            Series("max by (topic) (seamlessflow_kafka_consumer_lag)", "{{topic}}"),
        ),
        _panel(
            "Events read back, a second",
            "ops",
            Series(_rate("seamlessflow_manager_events_total", "accepted"), "accepted {{accepted}}"),
        ),
        _panel(
            "Types of these events, a second",
            "ops",
            Series(_rate("seamlessflow_manager_events_total", "type"), "{{type}}"),
        ),
    ),
)

BOARDS = (DATA_PLANE, CONTROL_PLANE, TRAINING, KAFKA)
