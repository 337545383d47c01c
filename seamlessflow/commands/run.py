"""What `demo` and `train` share: runs a training and tells what came of it."""

import sys

import typer
from rich.console import Console

from seamlessflow.config import RunConfig
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.reports.result_view import result_view
from seamlessflow.runs.training import Held, Prepare, train
from seamlessflow.watching.display import display

_INTERRUPTED = 130


def run_training(
    config: RunConfig, prepare: Prepare | None = None, held: Held | None = None
) -> None:
    """Trains to the end. Raises `typer.Exit` with status 1 where the check found a fault."""
    console = Console()
    try:
        with stoppable() as stop, display(console, config.run.policy) as shown:
            outcome = train(config, shown, stop, prepare, held)
    except Interrupted:
        console.print(f"ended as asked; what there is lies in {config.out}")
        sys.exit(_INTERRUPTED)
    console.print(result_view(outcome))
    if not outcome.verification.clean:
        raise typer.Exit(1)
