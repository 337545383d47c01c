"""The command `seamlessflow sft`: supervised fine-tuning on a file of conversations."""

from pathlib import Path
from typing import Annotated

import typer


def sft(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    data: Annotated[
        Path, typer.Option(help='Conversations, {"messages": [...], "tools": [...]} a line.')
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Times that the file is learned.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Conversations of a step.")] = 16,
) -> None:
    """Fine-tune policy.model on the answers of conversations; resumes what is in OUT/sft.

    Writes OUT/sft/model, which policy.model of a training may name. Needs no Kafka. Of
    trainer.loss the aggregation alone counts.
    """
    from seamlessflow.checks.check import before_fine_tuning
    from seamlessflow.config_file import load

    loaded = load(config, before_fine_tuning)
    # Not earlier: torch takes seconds, and a missing package is a fault that the check names.
    from seamlessflow.runs.supervised.training import fine_tune

    typer.echo(f"the model is in {fine_tune(loaded, data, epochs, batch, _show)}")


def _show(step: int, steps: int, metrics: dict[str, float]) -> None:
    loss, tokens = metrics["loss"], metrics["tokens_trained"]
    typer.echo(f"step {step} of {steps}: loss {loss:.4f}, {tokens:.0f} tokens")
