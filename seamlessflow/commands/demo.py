"""The command `seamlessflow demo`, which trains a tiny model that it makes, or a real one."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from seamlessflow.commands.options import WithConsole

STEPS = 80
SUMS_STEPS = 40


def demo(
    out: Annotated[
        Path, typer.Option(help="Directory of the run; an earlier run in it is renamed.")
    ] = Path(".seamlessflow/demo"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps.  [80, or 40 with --real]")
    ] = None,
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
    real: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Train this model on sums, in place of the tiny one: a Hugging Face directory, or "
            "a name at its hub. scripts/demo --real makes one.",
        ),
    ] = None,
    console: WithConsole = True,
) -> None:
    """Train a tiny model with real agents over a real Kafka, and show how it learns.

    Starts broker, gateway, trajectory manager, scheduler, two workers, trainer and agents. Writes
    summary.json, pictures, trained/, the weights and the log to --out. Ctrl-C stops all in order.

    With --real it trains a model of yours on sums and differences, with one worker that rolls out
    and trains in turns.
    """
    pages = console and find_spec("starlette") is not None
    if real is None:
        _train_tiny_model(
            out, steps or STEPS, seed, engine, backend, ranks, tensor_parallel, adapter, pages
        )
    elif (engine, backend, ranks, tensor_parallel, adapter) == ("torch", "torch", 1, 1, 0):
        _train_on_sums(out, real, steps or SUMS_STEPS, seed, pages)
    else:
        text = "it trains a whole model with torch on one worker: other options need a run.yaml"
        raise typer.BadParameter(text, param_hint="--real")


def _train_tiny_model(
    out: Path,
    steps: int,
    seed: int,
    engine: str,
    backend: str,
    ranks: int,
    tensor_parallel: int,
    adapter: int,
    with_console: bool,
) -> None:
    """Run the demo with a model that it makes. Raise `typer.BadParameter` and `ConfigRejected`."""
    from seamlessflow.demo.configuration import (
        HEAD_DIMS,
        adapted,
        demo_config,
        divided,
    )
    from seamlessflow.demo.directory import prepare_process

    if tensor_parallel > 1 and backend != "megatron":
        text = f"only megatron divides layers, not {backend}"
        raise typer.BadParameter(text, param_hint="--tensor-parallel")
    trainer = {**divided(backend, ranks, tensor_parallel), **adapted(adapter)}
    config = demo_config(out, steps, seed, engine, trainer)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training import HeldBackTasks
    from seamlessflow.runs.training_run import RENAMED, run_training

    _set_aside(out)
    held_back = HeldBackTasks(out / "tasks" / "eval.jsonl")
    prepare = prepare_process(out, seed, HEAD_DIMS[engine])
    run_training(config, prepare, held_back, RENAMED, with_console)


def _train_on_sums(out: Path, model: str, steps: int, seed: int, with_console: bool) -> None:
    """Run the demo with a real model. Raise `typer.BadParameter` and `ConfigRejected`."""
    from seamlessflow.demo.configuration import sums_config
    from seamlessflow.demo.sums import write_sums

    if Path(model).resolve().is_relative_to(out.resolve()):
        text = f"{model} is in {out}, which is renamed: name another --out"
        raise typer.BadParameter(text, param_hint="--real")
    config = sums_config(out, model, steps, seed)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training import HeldBackTasks
    from seamlessflow.runs.training_run import RENAMED, run_training
    from seamlessflow.schemas.records import Sampling

    _set_aside(out)
    typer.echo(write_sums(out / "tasks", seed))
    held_back = HeldBackTasks(out / "tasks" / "eval.jsonl", sampling=Sampling(temperature=0))
    run_training(config, held_back=held_back, later=RENAMED, with_console=with_console)


def _set_aside(out: Path) -> None:
    """Rename the directory of an earlier run and say so. Raise `RunUnderWay`."""
    from seamlessflow.demo.directory import set_aside

    if (kept := set_aside(out)) is not None:
        typer.echo(f"the earlier run is kept in {kept}")
