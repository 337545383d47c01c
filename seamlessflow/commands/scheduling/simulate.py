"""The command `seamlessflow simulate`: strategies compared on a modelled cluster."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seamlessflow.commands.scheduling.compared_strategies import (
    SimulateOptions,
    compare_strategies,
)
from seamlessflow.commands.scheduling.options import KeptMeasures, RecordedRunOption, RunOnKafka
from seamlessflow.infra.errors import ExitStatus

_MOST_WORKERS = 100_000
_MOST_DEVICES = 1_000


def _workers_with(tags: str) -> Any:
    return typer.Option(min=0, max=_MOST_WORKERS, help=f"Workers with {tags}.")


_SimulationConfig = Annotated[
    Path | None,
    typer.Option(
        help="Run configuration. Read are simulation, device_model, run, scheduler and pacing; and "
        "workers, if simulation names none."
    ),
]


_WholeBatches = Annotated[
    bool | None,
    typer.Option(
        "--whole-batches",
        help="One batch in flight, trained as a whole (the published one step off).",
    ),
]


def simulate(
    config: _SimulationConfig = None,
    recorded: RecordedRunOption = None,
    kafka: RunOnKafka = False,
    measured: KeptMeasures = None,
    rollout: Annotated[int | None, _workers_with("only the tag rollout")] = None,
    train: Annotated[int | None, _workers_with("only the tag train")] = None,
    both: Annotated[int | None, _workers_with("both tags")] = None,
    devices: Annotated[
        int, typer.Option(min=1, max=_MOST_DEVICES, help="Devices in each of these workers.")
    ] = 8,
    hardware: Annotated[str | None, typer.Option(help="Device, such as H100 or H20.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, such as Qwen3-32B.")] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="Strategy, or module:function; can be repeated.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=3, help="Optimizer steps.")] = None,
    lag: Annotated[int | None, typer.Option(min=0, help="Like run.lag.")] = None,
    whole_batches: _WholeBatches = None,
    seed: Annotated[int | None, typer.Option(help="Seed for all draws.")] = None,
    timelines: Annotated[
        Path | None, typer.Option(help="Folder that gets a page with each strategy's timeline.")
    ] = None,
) -> None:
    """Compare scheduling strategies on a modelled cluster, before a run (docs/scheduling/plan.md).

    Needs neither Kafka nor a device. Options override the file, and both override a recorded run.
    `seamlessflow settings simulation` explains that section, and `seamlessflow settings
    device_model` the devices.
    """
    options = SimulateOptions(
        config=config,
        recorded=recorded,
        kafka=kafka,
        measured=measured,
        workers={("rollout",): rollout, ("train",): train, ("rollout", "train"): both},
        devices=devices,
        hardware=hardware,
        model=model,
        strategies=strategy,
        steps=steps,
        lag=lag,
        whole_batches=whole_batches,
        seed=seed,
        timelines=timelines,
    )
    if not compare_strategies(options):
        raise typer.Exit(ExitStatus.LASTING)
