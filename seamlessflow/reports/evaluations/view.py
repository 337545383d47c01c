"""Tables for evaluations, and for two that are compared. Called by `seamlessflow eval`."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seamlessflow.reports.evaluations.comparison import (
    ChangedTask,
    EvaluationComparison,
    PairedDifference,
    SetComparison,
)
from seamlessflow.reports.evaluations.result import EvaluationResult
from seamlessflow.trainer.data.figures.chances import ConfidenceInterval

_SHOWN = 20
"""Most changed tasks that are shown for each kind; the JSON has all."""
_LONGEST_ID = 60


def evaluation_table(results: Mapping[str, EvaluationResult]) -> Table:
    """Return each set's figures, one column for each set."""
    table = _table("", *results)
    names = list(dict.fromkeys(name for result in results.values() for name in _rows(result)))
    for name in names:
        table.add_row(name, *(_rows(result).get(name, "") for result in results.values()))
    return table


def comparison_view(compared: EvaluationComparison) -> RenderableType:
    """Return each set's differences, the tasks that changed, and what is left out."""
    parts: list[RenderableType] = []
    for name, of_set in compared.sets.items():
        parts += [Text(_title(name, of_set)), _differences(of_set)]
        parts += _changed("better", of_set.better) + _changed("worse", of_set.worse)
    for where, names in (("first", compared.only_first), ("second", compared.only_second)):
        if names:
            parts.append(Text(f"left out, with tasks of the {where} alone: {', '.join(names)}"))
    return Group(*parts)


def _rows(result: EvaluationResult) -> dict[str, str]:
    error = f" ± {result.error:.4f}" if result.error is not None else ""
    rows = {"reward": "" if result.reward is None else f"{result.reward:.4f}{error}"}
    for sign, chances, ranges in (
        ("@", result.pass_at, result.pass_at_range),
        ("^", result.pass_all, result.pass_all_range),
    ):
        rows |= {
            f"pass{sign}{k}": f"{chance:.3f} ({_ends(ranges[k])})" for k, chance in chances.items()
        }
    costs = {
        "turns": result.turns,
        "sampled tokens": result.sampled_tokens,
        "prompt tokens": result.prompt_tokens,
    }
    shown = {name: f"{cost:,.1f}" for name, cost in costs.items() if cost is not None}
    return {**rows, **shown, "sessions": f"{result.sessions:,}"}


def _title(name: str, compared: SetComparison) -> str:
    left = compared.left_out
    reasons = {
        "in the first alone": left.only_first,
        "in the second alone": left.only_second,
        "without a session that counted": left.unjudged,
    }
    out = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    tasks = f"{name}: {compared.tasks:,} tasks compared" + (f" (left out: {out})" if out else "")
    return f"{tasks}; a session passes with {compared.success:g} or more"


def _differences(compared: SetComparison) -> Table:
    table = _table("", "first", "second", "difference", "p", "test")
    for name, difference in (("reward", compared.reward), ("passing", compared.passing)):
        table.add_row(name, *_cells(difference))
    return table


def _cells(difference: PairedDifference) -> Sequence[str]:
    ends = "" if difference.interval is None else f" ({_ends(difference.interval, sign='+')})"
    return (
        f"{difference.first:.4f}",
        f"{difference.second:.4f}",
        f"{difference.difference:+.4f}{ends}",
        f"{difference.p:.3g}",
        difference.test,
    )


def _changed(kind: str, tasks: Sequence[ChangedTask]) -> list[Text]:
    shown = ", ".join(
        f"{_short(task.task_id)} {task.first:.2g} → {task.second:.2g}" for task in tasks[:_SHOWN]
    )
    more = f" and {len(tasks) - _SHOWN:,} more" if len(tasks) > _SHOWN else ""
    return [Text(f"{kind}: {len(tasks):,}" + (f": {shown}{more}" if tasks else ""))]


def _short(task_id: str) -> str:
    """Return an id on one line, cut if it is long."""
    text = task_id.replace("\n", "\u240a")
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID - 1]}…"


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False)
    first, *others = names
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _ends(interval: ConfidenceInterval, sign: str = "") -> str:
    return f"{interval.low:{sign}.3f} to {interval.high:{sign}.3f}"
