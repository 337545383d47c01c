"""Recorded run as settings: what its topics show about devices, workload, workers and steps. Pure.

The first steps are left out: during them, programs still load what they need.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.worker.tags import ROLES
from seamlessflow.lab.calibration.rates import measured_rates
from seamlessflow.lab.calibration.recorded_run import Recorded, RecordedSession
from seamlessflow.lab.calibration.workload import measured_workload
from seamlessflow.scheduler.state.timeline import in_force
from seamlessflow.scheduler.state.workers import device_count
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

WARM_UP_STEPS = 2
_LEAST_STEPS = 3
_DIGITS = 4
_ROWS = 256
"""A full batch's rows if no heartbeat reports them, as `simulation.rows`."""
_LENGTHS = ("turn_tokens", "spread", "most_tokens", "prompt_effect")


class TooShort(SeamlessFlowError):
    """A recorded run has too few optimizer steps to take rates and workload from it."""

    lasting = True

    def __init__(self, steps: int) -> None:
        self.steps = steps
        super().__init__(
            f"the recorded run has {steps} completed optimizer steps, and {WARM_UP_STEPS} are left "
            f"out: it needs {_LEAST_STEPS} to take rates and workload from it"
        )


def sections(recorded: Recorded) -> dict[str, Any]:
    """Return run configuration sections as the run shows them, rounded. Raises `TooShort`."""
    control = list(in_force(recorded.control))
    ends_ms = [record.at_ms for record in control if isinstance(record, r.StepCompleted)]
    if len(ends_ms) < _LEAST_STEPS:
        raise TooShort(len(ends_ms))
    since_ms = ends_ms[WARM_UP_STEPS - 1]
    until_ms = ends_ms[-1]
    turns = [
        turn for turn in recorded.turns if since_ms <= turn.started_ms and turn.ended_ms <= until_ms
    ]
    rows = recorded.rows or _ROWS
    window = since_ms, until_ms
    devices = measured_rates(control, turns, _tokens(recorded.sessions), rows, window)
    workload = measured_workload(recorded.sessions, turns, control)
    lengths = {name: workload[name] for name in _LENGTHS if name in workload}
    measured = {
        "device_model": devices,
        "simulation": {"workers": _workers(control), "rows": rows, "workload": workload},
        "rollout": {"clock": lengths},
        "run": _run(control, recorded.sessions),
    }
    return {name: _rounded(section) for name, section in measured.items()}


def at_scale(measured: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Return a rehearsal's sections, with its device times divided by its scale.

    Agents and software ran in real time, so their times stay.
    """
    devices = _divided(measured["device_model"], scale) if scale != 1 else measured["device_model"]
    return {**measured, "device_model": devices}


def under(settings: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged; a value in `settings` overrides a measured one."""
    merged = dict(measured)
    for name, value in settings.items():
        below = merged.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[name] = under(value, below)
        else:
            merged[name] = value
    return merged


def _workers(control: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the workers that joined, in lots that are alike."""
    joined = {record.worker: record for record in control if isinstance(record, r.WorkerJoined)}
    # Tags that only describe a worker are not simulated.
    lots = Counter((_roles(worker.tags), device_count(worker)) for worker in joined.values())
    return [
        {"count": count, "tags": list(tags), "devices": devices}
        for (tags, devices), count in lots.items()
    ]


def _roles(tags: Sequence[str]) -> tuple[str, ...]:
    return tuple(tag for tag in tags if tag in ROLES)


def _tokens(sessions: Iterable[RecordedSession]) -> Mapping[str, int]:
    tokens: Counter[str] = Counter()
    for session in sessions:
        tokens[session.group] += session.tokens
    return tokens


def _run(control: Iterable[Record], sessions: Sequence[RecordedSession]) -> dict[str, int]:
    sizes = Counter(len(record.groups) for record in control if isinstance(record, r.BatchReady))
    run = {"groups_per_step": max(1, sizes.most_common(1)[0][0])} if sizes else {}
    groups = Counter(session.group_size for session in sessions)
    return {**run, **({"group_size": groups.most_common(1)[0][0]} if groups else {})}


def _divided(value: Any, scale: float) -> Any:
    if isinstance(value, dict):
        return {name: _divided(part, scale) for name, part in value.items()}
    return float(f"{value / scale:.{_DIGITS}g}")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
