"""Steps that were executed again, as lines for the terminal and as JSON. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.recorded.retrain.reexecution import RepeatedStep
from seamlessflow.schemas.tokens import shown_step, step_name

ROUNDING = 1e-3
"""Largest relative difference in a step's metric that float32 summation order explains."""
COMPARED = ("loss", "grad_norm", "entropy", "policy_kl")
"""A step's metrics that say how it was trained, and are compared with the recorded ones."""


def step_line(step: RepeatedStep, ablation: bool) -> str:
    """Return the sentence about a step."""
    number = step_name(step.recorded.step)
    if step.recorded.commit is None:
        return f"{number}: skipped, as recorded"
    shown = ", ".join(_metric(name, step) for name in COMPARED if name in step.metrics)
    if ablation:
        return f"{number}: {shown}"
    if not step.recorded.tensors_hash:
        return f"{number}: no hash is recorded; {shown}"
    return f"{number}: tensors equal" if step.equal else f"{number}: tensors differ; {shown}"


def outcome_lines(steps: Sequence[RepeatedStep], ablation: bool) -> list[str]:
    """Return the sentences after the last step."""
    trained = [step for step in steps if step.recorded.commit is not None]
    if ablation:
        return [f"executed {len(trained)} steps with other settings"]
    differing = [step for step in trained if step.recorded.tensors_hash and not step.equal]
    unknown = sum(not step.recorded.tensors_hash for step in trained)
    lines = [f"executed {len(trained)} steps: {len(trained) - len(differing) - unknown} equal"]
    if differing:
        lines.append(f"the first that differs is {step_name(differing[0].recorded.step)}")
        lines.append(f"largest relative difference of a metric: {_largest(differing):.2g}")
        lines.append(_why(differing[0]))
    return lines


def steps_json(steps: Sequence[RepeatedStep]) -> list[dict[str, Any]]:
    """Return the steps as JSON values."""
    return [
        {
            "step": shown_step(step.recorded.step),
            "skipped": step.recorded.commit is None,
            "equal": step.equal,
            "tensors_hash": step.tensors_hash,
            "recorded_hash": step.recorded.tensors_hash,
            "metrics": dict(step.metrics),
            "recorded_metrics": {
                name: value for name, value in step.recorded.metrics.items() if name in step.metrics
            },
        }
        for step in steps
    ]


def _metric(name: str, step: RepeatedStep) -> str:
    now = step.metrics[name]
    then = step.recorded.metrics.get(name)
    return f"{name} {now:.6g}" + ("" if then is None else f" (recorded {then:.6g})")


def _why(first: RepeatedStep) -> str:
    """Return why the first differing step may differ."""
    place = f"--{step_name(first.recorded.step)} --tensors FILE finds its first tensor that differs"
    if _relative(first.metrics, first.recorded.metrics) < ROUNDING:
        return (
            "its metrics differ by rounding alone: sums were divided otherwise, as with another "
            "number of CPU threads where they were computed, another instruction set or another "
            f"choice of the maths library; {place}"
        )
    return f"that is more than rounding: its batch, settings or weights are others; {place}"


def _largest(steps: Sequence[RepeatedStep]) -> float:
    return max((_relative(step.metrics, step.recorded.metrics) for step in steps), default=0.0)


def _relative(now: Mapping[str, float], then: Mapping[str, float]) -> float:
    names = [name for name in COMPARED if name in now and name in then]
    return max(
        (abs(now[name] - then[name]) / max(abs(then[name]), math.ulp(1.0)) for name in names),
        default=0.0,
    )
