"""The command `seamlessflow merge`, for a policy version that was trained as an adapter."""

from pathlib import Path
from typing import Annotated

import typer


def merge(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    to: Annotated[Path, typer.Option(help="Directory to write; it must not exist.")],
    version: Annotated[
        int | None, typer.Option(min=0, help="The run's policy version; by default the newest.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Which policy, if the run has several; by default the first.")
    ] = None,
) -> None:
    """Write a policy that was trained as an adapter (trainer.adapter) as a whole model.

    The directory has all that other programs load: weights, configuration and tokenizer.
    """
    from seamlessflow.config_file import load, no_task

    loaded = load(config, read_tasks=no_task)
    # Not earlier: it imports torch, which takes seconds.
    from seamlessflow.runs.whole_model import write_merged

    chosen = write_merged(loaded, to, version, policy)
    typer.echo(f"version {chosen.version} of {chosen.base}, merged, is in {to}")
