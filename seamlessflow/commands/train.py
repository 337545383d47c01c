"""The command `seamlessflow train`: a training with the user's tasks, agent, model and cluster."""

from pathlib import Path
from typing import Annotated

import typer


def _settings(asked: bool) -> None:
    if asked:
        from infra.help import describe
        from infra.settings import ENV_PREFIX
        from seamlessflow.config import RunConfig

        typer.echo(describe(RunConfig, ENV_PREFIX))
        raise typer.Exit


def train(
    config: Annotated[
        Path, typer.Option(help="Run configuration, YAML or TOML; see runbooks/local.md.")
    ],
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", callback=_settings, is_eager=True, help="Explain every setting and exit."
        ),
    ] = False,
) -> None:
    """Train a policy on your own tasks with your own agent; resumes the run in its directory.

    An environment variable such as SEAMLESSFLOW_RUN__STEPS=50 overrides run: {steps: 50} in the
    file.
    """
    from seamlessflow.checks.check import before_training
    from seamlessflow.config_file import load

    loaded = load(config, before_training)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training_run import run_training

    run_training(loaded)
