"""Training as a command: shows its progress, prints its outcome. Shared by `demo` and `train`."""

import sys

import typer
from rich.console import Console

from infra.errors import ExitStatus
from seamlessflow.config import RunConfig
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.reports.outcome_view import outcome_view
from seamlessflow.runs.training import HeldBackTasks, Prepare, train
from seamlessflow.watching.display import display

_INTERRUPTED = 130


def run_training(
    config: RunConfig, prepare: Prepare | None = None, held_back: HeldBackTasks | None = None
) -> None:
    """Train to the end.

    Raises `typer.Exit` if a fault was found or nothing was trained: a finished run stays as it is.
    """
    console = Console()
    try:
        with stoppable() as stop, display(console, config.run.policy) as shown:
            outcome = train(config, shown, stop, prepare, held_back)
    except Interrupted:
        console.print(f"stopped as asked; the run so far is in {config.out}")
        sys.exit(_INTERRUPTED)
    console.print(outcome_view(outcome))
    if outcome.failed:
        raise typer.Exit(ExitStatus.LASTING)
