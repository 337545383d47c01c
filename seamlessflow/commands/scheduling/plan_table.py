"""Output of `seamlessflow plan`: a table of the choices, and the advice."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seamlessflow.lab.simulation.figures import SimulatedFigures
    from seamlessflow.reports.split_plan import PlannedCluster, SplitChoice

_COLUMNS = ("strategy", "train on", "lag", "step s", "idle", "limit")
_SIMULATED = ("simulated step s", "idle", "staleness")
_WIDTHS = (13, 11, 4, 8, 6, 19, 17, 6, 10)


def print_plan(
    cluster: "PlannedCluster",
    rows: "Sequence[tuple[SplitChoice, SimulatedFigures | None]] | None" = None,
    steps: int = 0,
) -> None:
    """Print the choices of a plan, with what `rows` say of their simulations if there were any, of
    so many `steps` each.
    """
    from seamlessflow.reports.split_plan import advice, as_simulated, choices

    typer.echo(_row((*_COLUMNS, *(_SIMULATED if rows else ()))))
    for split, simulated in rows or [(choice, None) for choice in choices(cluster)]:
        figures = tuple[str, ...]()
        if simulated is not None:
            idle = f"{simulated.spent.idle_share:.0%}"
            figures = (f"{simulated.step_s:.2f}", idle, f"{simulated.staleness:.2f}")
        typer.echo(_row((*_predicted(split, cluster.devices), *figures)))
    text = f"; the simulated figures count, of {steps} steps each" if rows else ""
    typer.echo(f"step s, idle and limit are estimates, of a closed form{text}\n")
    compared = choices(cluster) if rows is None else as_simulated(rows)
    for sentence in advice(cluster, compared):
        typer.echo(sentence)


def _predicted(split: "SplitChoice", devices: int) -> tuple[str, ...]:
    prediction = split.prediction
    if not prediction.limit:  # it chooses its gang for each step
        return split.strategy, "its choice", str(split.lag), "-", "-", "-"
    gang = f"{split.gang} of {devices}"
    return (
        split.strategy,
        gang,
        str(split.lag),
        f"{prediction.step:.2f}",
        f"{prediction.idle:.0%}",
        prediction.limit,
    )


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
