"""The command `seamlessflow plan`: idle share and step time by strategy and split, or memory."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seamlessflow.commands.scheduling.planned_memory import MemoryOptions, plan_memory
from seamlessflow.commands.scheduling.planned_steps import GivenWork, StepOptions, plan_steps

_SHORTEST_S = 1e-6
_LONGEST_S = 1e12


def _checked_time(value: float | None) -> float | None:
    """Refuse an impossible step time: infinity, NaN, or a number that sums overflow or lose."""
    if value is None or value == 0 or _SHORTEST_S <= value <= _LONGEST_S:
        return value
    raise typer.BadParameter(f"{value:g} s is neither 0 nor {_SHORTEST_S:g} to {_LONGEST_S:g} s")


def _time(text: str) -> Any:
    return typer.Option(help=text, callback=_checked_time)


_PlanConfig = Annotated[
    Path | None, typer.Option(help="Run configuration; each choice is simulated, as simulate.")
]

_Out = Annotated[
    Path | None, typer.Option(help="Directory of a run, live or ended, whose steps count.")
]

_OnKafka = Annotated[
    bool, typer.Option("--kafka", help="The steps on the Kafka of SEAMLESSFLOW_KAFKA__*.")
]

_Devices = Annotated[
    str | None,
    typer.Option(help="G: devices in all. Of memory: 8xH100, 8xH100-80GB, or 8 with --memory."),
]

_TrainDevices = Annotated[
    int | None, typer.Option(min=1, help="g: devices that train.  [default: all]")
]

_Model = Annotated[
    Path | None, typer.Option(help="Plan memory of a model: as policy.model. See docs/compute.md.")
]

_DeviceMemory = Annotated[
    str | None, typer.Option(help="Plan memory: that of each device, as 80GB.")
]

_HostMemory = Annotated[str | None, typer.Option(help="Memory of each host, as 2TB.")]

_EngineDevices = Annotated[
    int | None, typer.Option(min=1, help="Devices of each engine.  [default: 1]")
]

_Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the run, as trainer.ranks=16.")
]

_Strategy = Annotated[str | None, typer.Option(help="Strategy of now.  [default: that of the run]")]

_Lag = Annotated[
    int | None, typer.Option(min=0, max=1_000, help="As run.lag.  [default: that of the run]")
]

_AsJson = Annotated[bool, typer.Option("--json", help="Plan memory: print it as JSON.")]


def plan(
    config: _PlanConfig = None,
    out: _Out = None,
    kafka: _OnKafka = False,
    rollout_s: Annotated[float | None, _time("R: device seconds of rollout of a step.")] = None,
    train_s: Annotated[float | None, _time("T: device seconds of training of a step.")] = None,
    devices: _Devices = None,
    train_devices: _TrainDevices = None,
    switch_s: Annotated[float | None, _time("Change to training and back.  [default: 0]")] = None,
    load_s: Annotated[float | None, _time("Stand-still for new weights.  [default: 0]")] = None,
    group_s: Annotated[float | None, _time("A group's latency.  [default: 0]")] = None,
    strategy: _Strategy = None,
    lag: _Lag = None,
    model: _Model = None,
    memory: _DeviceMemory = None,
    host_memory: _HostMemory = None,
    engine_devices: _EngineDevices = None,
    settings: _Set = None,
    as_json: _AsJson = False,
) -> None:
    """Predict idle share and step time by strategy and split, and say what would shorten a step.

    From given work, a configuration (simulated) or measured steps; see docs/scheduling/plan.md.
    With --model, or --config and --memory or --devices: memory by part, and whether it fits.
    """
    of_memory = MemoryOptions(
        model=model,
        config=config,
        devices=devices,
        train_devices=train_devices,
        engine_devices=engine_devices,
        memory=memory,
        host_memory=host_memory,
        settings=settings or (),
        as_json=as_json,
    )
    if of_memory.asked():
        plan_memory(of_memory)
        return
    work = GivenWork(
        rollout=rollout_s,
        train=train_s,
        switch=switch_s,
        load=load_s,
        latency=group_s,
        devices=devices,
        train_devices=train_devices,
    )
    plan_steps(StepOptions(work, config, out, kafka, strategy, lag))
