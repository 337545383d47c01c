"""The command `seamlessflow demo`: it trains a tiny model, or a real one, or rehearses a run."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from seamlessflow.commands.options import WithConsole
from seamlessflow.commands.scheduling.rehearsed_pair import rehearse_pair

STEPS = 80
SUMS_STEPS = 40
OUT = Path(".seamlessflow/demo")
REHEARSED_OUT = Path(".seamlessflow/demo-rehearsed")

DemoOut = Annotated[
    Path | None,
    typer.Option(
        help=f"The run's directory; an earlier run in it is renamed. By default {OUT}; with "
        f"--rehearse {REHEARSED_OUT}, where an earlier run is replaced."
    ),
]
DemoSteps = Annotated[
    int | None,
    typer.Option(min=1, help="Optimizer steps; by default 80, 40 with --real, 8 with --rehearse."),
]
DemoEngine = Annotated[
    Literal["torch", "vllm"],
    typer.Option(help="Engine that samples; torch runs anywhere, vllm needs scripts/vllm-cpu."),
]
DemoBackend = Annotated[
    Literal["torch", "fsdp2", "megatron"],
    typer.Option(help="What trains: one device, or --ranks processes together."),
]
DemoSharing = Annotated[
    int, typer.Option(min=1, help="With megatron: ranks that compute each layer together.")
]
DemoAdapter = Annotated[
    int,
    typer.Option(min=0, help="Train an adapter (LoRA) with this rank instead of the whole model."),
]
DemoModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Train this model on sums, instead of the tiny one: a Hugging Face directory, or a "
        "name at its hub. scripts/demo --real makes one.",
    ),
]
DemoRehearsed = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Train nothing: rehearse a run on eight modelled devices, first disaggregated and "
        "then multiplexed, about a minute each.",
    ),
]


def demo(
    out: DemoOut = None,
    steps: DemoSteps = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for tasks, model and warm-up.")] = 0,
    engine: DemoEngine = "torch",
    backend: DemoBackend = "torch",
    ranks: Annotated[int, typer.Option(min=1, help="Ranks for fsdp2 and megatron.")] = 1,
    tensor_parallel: DemoSharing = 1,
    adapter: DemoAdapter = 0,
    real: DemoModel = None,
    rehearse: DemoRehearsed = False,
    console: WithConsole = True,
) -> None:
    """Train a tiny model with real agents over a real Kafka, and show how it learns.

    Starts broker, gateway, trajectory manager, scheduler, two workers, trainer and agents. Writes
    summary.json, pictures, trained/, the weights and the log to --out. Ctrl-C stops all in order.

    With --real it trains your own model on sums and differences, with one worker that rolls out and
    trains in turns.
    """
    pages = console and find_spec("starlette") is not None
    whole = (engine, backend, ranks, tensor_parallel, adapter) == ("torch", "torch", 1, 1, 0)
    if rehearse:
        _refuse_with_rehearse(real, engine, backend, ranks, tensor_parallel, adapter)
        rehearse_pair(out or REHEARSED_OUT, steps, seed, pages)
    elif real is None:
        place = out or OUT
        _train_tiny_model(
            place, steps or STEPS, seed, engine, backend, ranks, tensor_parallel, adapter, pages
        )
    elif whole:
        _train_on_sums(out or OUT, real, steps or SUMS_STEPS, seed, pages)
    else:
        text = "it trains a whole model with torch on one worker: other options need a run.yaml"
        raise typer.BadParameter(text, param_hint="--real")


def _refuse_with_rehearse(
    real: str | None, engine: str, backend: str, ranks: int, tensor_parallel: int, adapter: int
) -> None:
    """Raise `typer.BadParameter` for the first option that has no meaning in a rehearsal."""
    set_by_user = {
        "--real": real is not None,
        "--engine": engine != "torch",
        "--backend": backend != "torch",
        "--ranks": ranks != 1,
        "--tensor-parallel": tensor_parallel != 1,
        "--adapter": adapter != 0,
    }
    for name, is_set in set_by_user.items():
        if is_set:
            text = "a rehearsal has modelled devices and no weights: leave it out with --rehearse"
            raise typer.BadParameter(text, param_hint=name)


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
    """Rename an earlier run's directory and say so. Raise `RunUnderWay`."""
    from seamlessflow.demo.directory import set_aside

    if (kept := set_aside(out)) is not None:
        typer.echo(f"the earlier run is kept in {kept}")
