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
    Path | None, typer.Option(help="Run configuration; each choice is simulated, like `simulate`.")
]

_Out = Annotated[
    Path | None, typer.Option(help="Directory of a live or ended run, whose steps are measured.")
]

_OnKafka = Annotated[
    bool, typer.Option("--kafka", help="Measure the steps on the Kafka in SEAMLESSFLOW_KAFKA__*.")
]

_Devices = Annotated[
    str | None,
    typer.Option(
        help="G: devices in all. To plan memory: 8xH100, 8xH100-80GB, or 8 with --memory."
    ),
]

_TrainDevices = Annotated[
    int | None, typer.Option(min=1, help="g: devices that train; by default all.")
]

_Model = Annotated[
    Path | None,
    typer.Option(help="Plan memory for this model, as in policy.model. See docs/compute.md."),
]

_DeviceMemory = Annotated[
    str | None, typer.Option(help="Plan memory: each device's memory, such as 80GB.")
]

_HostMemory = Annotated[
    str | None, typer.Option(help="Plan memory: each host's memory, such as 2TB.")
]

_EngineDevices = Annotated[
    int | None, typer.Option(min=1, help="Devices in each engine; by default 1.")
]

_Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="One of the run's settings, such as trainer.ranks=16."),
]

_Strategy = Annotated[str | None, typer.Option(help="Present strategy; by default the run's.")]

_Lag = Annotated[
    int | None, typer.Option(min=0, max=1_000, help="Like run.lag; by default the run's.")
]

_AsJson = Annotated[bool, typer.Option("--json", help="Plan memory: print the plan as JSON.")]


def plan(
    config: _PlanConfig = None,
    out: _Out = None,
    kafka: _OnKafka = False,
    rollout_s: Annotated[float | None, _time("R: device seconds to roll out a step.")] = None,
    train_s: Annotated[float | None, _time("T: device seconds to train a step.")] = None,
    devices: _Devices = None,
    train_devices: _TrainDevices = None,
    switch_s: Annotated[float | None, _time("Switch to training and back, s; default 0.")] = None,
    load_s: Annotated[float | None, _time("Seconds to pause for new weights; default 0.")] = None,
    group_s: Annotated[float | None, _time("A group's latency in seconds; default 0.")] = None,
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

    It plans from given work, a configuration (simulated) or measured steps; see
    docs/scheduling/plan.md. With --model, or --config and --memory or --devices, it plans memory:
    by part, and whether it fits.
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
