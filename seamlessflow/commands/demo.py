"""`seamlessflow demo`: the whole system on this machine."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    out: Annotated[
        Path, typer.Option(help="Where all that the run leaves is put; an earlier run is kept.")
    ] = Path(".seamlessflow/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 80,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, model and warm-up.")] = 0,
    engine: Annotated[
        Literal["torch", "vllm"],
        typer.Option(help="What samples; torch runs anywhere, vllm where scripts/vllm-cpu ran."),
    ] = "torch",
) -> None:
    """Train a tiny model through a real Kafka, agents and all, and show how it learns.

    Starts broker, gateway, trajectory manager, scheduler, two workers, trainer and agents; leaves
    summary.json, reward.png, timeline.png, trained/, the weights and the Kafka data in --out.
    Ctrl-C ends it in order at any time.
    """
    from seamlessflow.commands.run import run_training
    from seamlessflow.demo.configuration import HEAD_DIMS, demo_config
    from seamlessflow.demo.making import make
    from seamlessflow.runs.earlier_runs import set_aside
    from seamlessflow.runs.training import Held

    kept = set_aside(out)
    if kept is not None:
        typer.echo(f"the earlier run is kept in {kept}")
    held = Held(out / "tasks" / "eval.jsonl")
    making = make(out, seed, HEAD_DIMS[engine])
    run_training(demo_config(out, steps, seed, engine), making, held)
