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
    of: "PlannedCluster",
    rows: "Sequence[tuple[SplitChoice, SimulatedFigures | None]] | None" = None,
    steps: int = 0,
) -> None:
    """Print the choices of a plan, with what `rows` say of their simulations if there were any, of
    so many `steps` each.
    """
    from seamlessflow.reports.split_plan import advice, as_simulated, choices

    typer.echo(_row((*_COLUMNS, *(_SIMULATED if rows else ()))))
    for one, found in rows or [(choice, None) for choice in choices(of)]:
        figures = tuple[str, ...]()
        if found is not None:
            idle = f"{found.spent.idle_share:.0%}"
            figures = (f"{found.step_s:.2f}", idle, f"{found.staleness:.2f}")
        typer.echo(_row((*_predicted(one, of.devices), *figures)))
    told = f"; the simulated figures count, of {steps} steps each" if rows else ""
    typer.echo(f"step s, idle and limit are estimates, of a closed form{told}\n")
    compared = choices(of) if rows is None else as_simulated(rows)
    for sentence in advice(of, compared):
        typer.echo(sentence)


def _predicted(one: "SplitChoice", devices: int) -> tuple[str, ...]:
    told = one.prediction
    if not told.limit:  # it chooses its gang for each step
        return one.strategy, "its choice", str(one.lag), "-", "-", "-"
    gang = f"{one.gang} of {devices}"
    return one.strategy, gang, str(one.lag), f"{told.step:.2f}", f"{told.idle:.0%}", told.limit


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
