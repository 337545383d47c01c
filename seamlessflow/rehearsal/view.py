"""View of a rehearsal for the terminal. Pure; makes `rich` objects."""

from collections.abc import Mapping
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.printable import number_of
from seamlessflow.rehearsal.rehearsal import Rehearsed
from seamlessflow.reports.outcome_view import staleness
from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    SWITCHING,
    TRAINING,
    UNDER_FILLED,
    WAITING,
)

_IDLE = (WAITING, UNDER_FILLED, SWITCHING)
"""The largest parts in idle time."""


def view(result: Rehearsed) -> RenderableType:
    """Return the figures that the run's devices would show, the loads, and the verdict."""
    figures = Table.grid(padding=(0, 2))
    figures.add_column(style="dim", justify="right")
    figures.add_column()
    for name, text in _figures(result):
        figures.add_row(name, text)
    verdict = (
        [Text(f"! refused: {reason}", "bold red") for reason in result.distorted]
        + [Text("  take fewer workers, a larger --scale, or a machine with more processors")]
        if result.distorted
        else [Text("this machine did not distort the figures", "green")]
    )
    if result.untrained:
        verdict.append(Text(f"! {result.untrained}", "bold yellow"))
    if result.no_room:
        verdict.append(Text(f"! {result.no_room}", "bold yellow"))
    return Group(figures, _loads(result.outcome.summary), *verdict)


def comparison(results: Mapping[str, Rehearsed]) -> RenderableType:
    """Return a table with the rehearsals' figures, a row for each strategy."""
    first = next(iter(results.values()))
    table = Table(box=None, padding=(0, 2))
    for name in ("strategy", "steps", "a step", "of the first's", "idle", *_IDLE):
        side: Literal["left", "right"] = "left" if name == "strategy" else "right"
        table.add_column(name.replace("_", "-"), justify=side)
    for name, result in results.items():
        summary = result.outcome.summary
        shares = summary["device_time"]
        table.add_row(
            name,
            str(summary["steps"]),
            f"{_step_s(result):.1f} s",
            f"{_step_s(result) / _step_s(first):.2f}",
            f"{1 - shares.get(DECODING, 0) - shares.get(TRAINING, 0):.1%}",
            *(f"{shares.get(part, 0):.1%}" for part in _IDLE),
        )
    return table


def _step_s(result: Rehearsed) -> float:
    """Return a step's time on the devices, without the scale."""
    return float(result.outcome.summary["step_s"] / result.scale)


def _figures(result: Rehearsed) -> list[tuple[str, str]]:
    summary = result.outcome.summary
    scale = result.scale
    step_s = summary["step_s"]
    wall_s = summary["train_wall_s"]
    tokens = summary["tokens_trained"]
    shares = sorted(summary["device_time"].items(), key=lambda share: -share[1])
    limits = [
        f"{seconds / scale:.2f} s by {name}" for name, seconds in summary["ideal_step_s"].items()
    ]
    hop = f"{result.software.hops.mean_ms:.0f} ms mean, {result.software.hops.p95_ms} ms p95"
    delay = f"{result.software.delay_ms:.0f} ms from a batch's last group to its step"
    policies = summary.get("policies") or {}
    switches = number_of(summary["role_switches"], "change of role", "changes of role")
    return [
        ("step", f"{step_s / scale:.2f} s; no shorter than {' and '.join(limits)}"),
        ("tokens", f"{scale * (tokens or 0) / wall_s:,.0f} trained a second"),
        *((name, _policy(policy, scale)) for name, policy in policies.items()),
        ("device time", ", ".join(f"{name.replace('_', '-')} {part:.1%}" for name, part in shares)),
        ("staleness", staleness(summary["max_staleness"])),
        ("switches", f"{switches} in {_steps(summary)}"),
        ("software", f"{hop} from a request to its TurnStarted; {delay}"),
        ("would break first", _limit(result)),
        ("files", f"{result.outcome.out}: timeline.png, summary.json, rehearsal.json"),
    ]


def _policy(summary: Mapping[str, Any], scale: float) -> str:
    step_s = summary["step_s"]
    took = "" if step_s is None else f", one in {step_s / scale:.2f} s"
    return f"{_steps(summary)}{took}, {summary['tokens_trained'] or 0:,} tokens trained"


def _steps(summary: Mapping[str, Any]) -> str:
    return number_of(summary["steps"], "step")


def _limit(result: Rehearsed) -> str:
    limit = result.limit
    return f"{limit.process}, at {limit.factor:.1f} times this load" if limit else "nothing"


def _loads(summary: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for name in ("process", "processors", "waited", "peak MiB"):
        table.add_column(name, justify="left" if name == "process" else "right")
    for name, load in summary["processors"].items():
        peak = summary["peak_rss_mb"].get(name, 0.0)
        table.add_row(name, f"{load['computed']:.0%}", f"{load['waited']:.1%}", f"{peak:.0f}")
    return table
