"""A side's result: its steps with their phases, as JSON and as a table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

GENERATION = "generation"
LOGPROBS = "log-probs"
UPDATE = "update"
REST = "rest"
PHASES = (GENERATION, LOGPROBS, UPDATE, REST)
"""Parts of a step, which sum to its seconds. `rest` is what lies in no other part."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """A step's end as a side reports it, with the work since the end before."""

    at_s: float
    """Seconds since 1970."""
    sampled: int
    """Tokens that the model sampled."""
    trained: int
    """Those among them that entered the loss."""
    phases: Mapping[str, float]
    """Seconds in each phase except `rest`."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Seconds in parts of `rest`, and further figures."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a side's processes use at a moment."""

    at_s: float
    cpu_s: float
    """Processor time so far, all processes together."""
    machine_s: float
    """Processor time so far, with all that runs on the machine."""
    peaks_mb: Mapping[str, float]
    """Each living process's largest resident memory so far."""

    @property
    def peak_mb(self) -> float:
        """Return the sum of these peaks."""
        return sum(self.peaks_mb.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A side's step: its length, its work, and what it took."""

    seconds: float
    cpu_s: float
    others_s: float
    """Processor time that other programs on the machine used."""
    sampled: int
    trained: int
    phases: Mapping[str, float]
    details: Mapping[str, float]


def measured_steps(ends: Sequence[StepEnd], usages: Sequence[Usage]) -> list[MeasuredStep]:
    """Return the steps between ends; the first end is the warm-up's."""
    return [_measured(before, end, usages) for before, end in pairwise(ends)]


def _measured(before: StepEnd, end: StepEnd, usages: Sequence[Usage]) -> MeasuredStep:
    seconds = end.at_s - before.at_s
    phases = {name: end.phases.get(name, 0.0) for name in PHASES}
    phases[REST] = seconds - sum(phases.values())
    used, used_before = usage_at(usages, end.at_s), usage_at(usages, before.at_s)
    cpu_s = used.cpu_s - used_before.cpu_s
    return MeasuredStep(
        seconds=round(seconds, 3),
        cpu_s=round(cpu_s, 3),
        others_s=round(used.machine_s - used_before.machine_s - cpu_s, 3),
        sampled=end.sampled,
        trained=end.trained,
        phases={name: round(value, 3) for name, value in phases.items()},
        details={name: round(value, 3) for name, value in end.details.items()},
    )


def usage_at(usages: Sequence[Usage], at_s: float) -> Usage:
    """Return the use at a moment, between the two looks beside it."""
    before = max((usage for usage in usages if usage.at_s <= at_s), key=_at, default=usages[0])
    after = min((usage for usage in usages if usage.at_s > at_s), key=_at, default=before)
    apart_s = after.at_s - before.at_s
    share = (at_s - before.at_s) / apart_s if apart_s > 0 else 0.0
    return Usage(
        at_s,
        before.cpu_s + share * (after.cpu_s - before.cpu_s),
        before.machine_s + share * (after.machine_s - before.machine_s),
        before.peaks_mb,
    )


def _at(usage: Usage) -> float:
    return usage.at_s


def as_json(
    side: str, version: str, steps: Sequence[MeasuredStep], usages: Sequence[Usage]
) -> dict[str, Any]:
    """Return the result of one run on a side."""
    largest = max(usages, key=lambda usage: usage.peak_mb)
    return {
        "side": side,
        "version": version,
        "steps": [asdict(step) for step in steps],
        "peak_mb": round(largest.peak_mb),
        "processes_mb": {name: round(mb) for name, mb in sorted(largest.peaks_mb.items())},
    }


def figures(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a side's figures over all its runs' steps: medians, and rates from sums."""
    steps = [step for run in runs for step in run["steps"]]
    seconds = [step["seconds"] for step in steps]
    phases = {name: median(step["phases"][name] for step in steps) for name in PHASES}
    sampled = sum(step["sampled"] for step in steps)
    trained = sum(step["trained"] for step in steps)
    return {
        "side": runs[0]["side"],
        "version": runs[0]["version"],
        "steps": len(steps),
        "step_s": round(median(seconds), 2),
        "step_s_least": round(min(seconds), 2),
        "step_s_most": round(max(seconds), 2),
        "sampled_tokens": round(sampled / len(steps)),
        "trained_tokens": round(trained / len(steps)),
        "step_ms_a_token": round(1000 * sum(seconds) / sampled, 1),
        "cpu_ms_a_token": round(1000 * sum(step["cpu_s"] for step in steps) / sampled, 1),
        "others_cores": round(sum(step["others_s"] for step in steps) / sum(seconds), 2),
        "sampled_tokens_a_s": _rate(steps, "sampled", GENERATION),
        "trained_tokens_a_s": _rate(steps, "trained", UPDATE),
        "peak_mb": max(run["peak_mb"] for run in runs),
        **{f"{name}_s": round(value, 2) for name, value in phases.items()},
    }


def _rate(steps: Sequence[Mapping[str, Any]], tokens: str, phase: str) -> float | None:
    seconds = sum(step["phases"][phase] for step in steps)
    if not seconds:
        return None
    rate: float = sum(step[tokens] for step in steps) / seconds
    return round(rate, 1)


COLUMNS: Mapping[str, str] = {
    "side": "side",
    "step_s": "step, s",
    "sampled_tokens": "tokens a step",
    "step_ms_a_token": "step, ms a token",
    "cpu_ms_a_token": "CPU, ms a token",
    "generation_s": "generation, s",
    "log-probs_s": "log-probs, s",
    "update_s": "update, s",
    "rest_s": "rest, s",
    "sampled_tokens_a_s": "sampled a s of generation",
    "trained_tokens_a_s": "trained a s of update",
    "peak_mb": "peak, MB",
    "others_cores": "others, cores",
}
"""The table's headings by figure."""


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the sides' figures as a Markdown table."""
    lines = [_line(COLUMNS.values()), "|" + "---|" * len(COLUMNS)]
    for row in rows:
        spread = f"{row['step_s']} ({row['step_s_least']}-{row['step_s_most']})"
        shown = {**row, "step_s": spread}
        lines.append(_line("" if shown[name] is None else str(shown[name]) for name in COLUMNS))
    return "\n".join(lines) + "\n"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"
