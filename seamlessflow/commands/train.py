"""`seamlessflow train`: the same loop on the user's own tasks, agent, model and cluster."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[
        Path, typer.Option(help="Run configuration, YAML or TOML; see runbooks/local.md.")
    ],
) -> None:
    """Train a policy on your own tasks with your own agent; resumes what lies in its directory.

    Every setting of the file can also be set by the environment: SEAMLESSFLOW_RUN__STEPS=50.
    """
    from seamlessflow.commands.run import run_training
    from seamlessflow.config import load

    run_training(load(config))
