"""The command `seamlessflow plan`: idle share and step time by strategy and split, or memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamlessflow.commands.scheduling.options import check_strategies
from seamlessflow.commands.scheduling.planned_memory import plan_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seamlessflow.reports.measured_step import MeasuredStep
    from seamlessflow.reports.split_plan import PlannedCluster
    from seamlessflow.scheduler.state.accounts.closed_form import StepWork
if TYPE_CHECKING:
    from seamlessflow.lab.simulation.figures import SimulatedFigures
    from seamlessflow.reports.split_plan import PlannedCluster, SplitChoice

_SHORTEST_S, _LONGEST_S = 1e-6, 1e12
_MOST_DEVICES = 100_000
_COLUMNS = ("strategy", "train on", "lag", "step s", "idle", "limit")
_SIMULATED = ("simulated step s", "idle", "staleness")
_WIDTHS = (13, 11, 4, 8, 6, 19, 17, 6, 10)


def _checked_time(value: float | None) -> float | None:
    """Refuse what is no time of a step: infinity, NaN, and what overflows or vanishes in sums."""
    if value is None or value == 0 or _SHORTEST_S <= value <= _LONGEST_S:
        return value
    raise typer.BadParameter(f"{value:g} s is neither 0 nor {_SHORTEST_S:g} to {_LONGEST_S:g} s")


def _time(text: str) -> Any:
    return typer.Option(help=text, callback=_checked_time)


_Devices = Annotated[
    str | None,
    typer.Option(help="G: devices in all. Of memory: 8xH100, 8xH100-80GB, or 8 with --memory."),
]

_TrainDevices = Annotated[
    int | None, typer.Option(min=1, help="g: devices that train.  [default: all]")
]

_Model = Annotated[
    Path | None, typer.Option(help="Plan memory: directory of a model. See docs/compute.md.")
]

_Memory = Annotated[str | None, typer.Option(help="Plan memory: that of each device, as 80GB.")]

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

_OF_MEMORY = (
    "--memory, --host-memory, --engine-devices, --set and --json plan memory: give --model, or "
    "--config with --memory or --devices"
)

_SOURCES = "give one of: --rollout-s with --train-s and --devices; --config; --out; --kafka"


def plan(
    config: Annotated[
        Path | None, typer.Option(help="Run configuration; each choice is simulated, as simulate.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of a run, live or ended, whose steps count.")
    ] = None,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="The steps on the Kafka of SEAMLESSFLOW_KAFKA__*.")
    ] = False,
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
    memory: _Memory = None,
    host_memory: _HostMemory = None,
    engine_devices: _EngineDevices = None,
    settings: _Set = None,
    as_json: _AsJson = False,
) -> None:
    """Predict idle share and step time by strategy and split, and say what would shorten a step.

    From given work, a configuration (simulated) or measured steps; see docs/scheduling/plan.md.
    With --model, or --config and --memory or --devices: memory by part, and whether it fits.
    """
    if model is not None or (config is not None and (memory or devices)):
        split, sizes = (train_devices, engine_devices), (memory, host_memory)
        plan_memory(model, config, devices, sizes, split, settings or (), as_json)
        return
    if memory or host_memory or engine_devices or settings or as_json:
        raise typer.BadParameter(_OF_MEMORY)
    count = _count(devices)
    times = {"rollout": rollout_s, "train": train_s, "switch": switch_s, "load": load_s}
    times["latency"] = group_s
    flags = any(value is not None for value in (*times.values(), count, train_devices))
    if flags + (config is not None) + (out is not None) + kafka != 1:
        raise typer.BadParameter(_SOURCES)
    _check(strategy, simulated=config is not None)  # before anything is read
    if config is not None:
        _plan_config(config, strategy, lag)
    elif flags:
        _plan_given(times, count, train_devices, strategy, lag)
    else:
        _plan_recorded(out, strategy, lag)


def _count(devices: str | None) -> int | None:
    """Return the number of devices of a plan of times."""
    if devices is None:
        return None
    if not devices.isdecimal() or not 1 <= int(devices) <= _MOST_DEVICES:
        text = f"--devices {devices}: a number of 1 to {_MOST_DEVICES} (of memory, with --model)"
        raise typer.BadParameter(text)
    return int(devices)


def _plan_given(
    times: "Mapping[str, float | None]",
    devices: int | None,
    train_devices: int | None,
    strategy: str | None,
    lag: int | None,
) -> None:
    from seamlessflow.reports.split_plan import PlannedCluster
    from seamlessflow.scheduler.state.accounts.closed_form import COLOCATED, MULTIPLEXED

    work, total = _work(times, devices, train_devices), devices or 1
    name, ahead = strategy or MULTIPLEXED, 1 if lag is None else lag
    if name == COLOCATED and train_devices not in (None, total):
        text = f"with --strategy colocated all {total} devices train"
        raise typer.BadParameter(f"--train-devices {train_devices}: {text}")
    gang = train_devices or total
    cluster = PlannedCluster(work=work, devices=total, gang=gang, lag=ahead, strategy=name)
    _check_rollout(cluster, f"--train-devices {gang}")
    print_plan(cluster)


def _check_rollout(cluster: "PlannedCluster", split: str) -> None:
    """Refuse a split on which no device is ever left to roll out."""
    from seamlessflow.scheduler.state.accounts.closed_form import DISAGGREGATED

    if cluster.strategy == DISAGGREGATED and cluster.gang >= cluster.devices:
        text = f"{_there_are(cluster.devices)}, and disaggregated needs one more that rolls out"
        raise typer.BadParameter(f"{split}: {text}")


def _there_are(devices: int) -> str:
    return "there is 1 device" if devices == 1 else f"there are {devices} devices"


def _work(
    times: "Mapping[str, float | None]", devices: int | None, train_devices: int | None
) -> "StepWork":
    from seamlessflow.scheduler.state.accounts.closed_form import StepWork

    if not times["rollout"] or not times["train"] or devices is None:
        raise typer.BadParameter("--rollout-s and --train-s above 0, and --devices, go together")
    if train_devices is not None and train_devices > devices:
        raise typer.BadParameter(f"--train-devices {train_devices}: {_there_are(devices)}")
    return StepWork(**{name: value or 0.0 for name, value in times.items()})


def _check(strategy: str | None, simulated: bool) -> None:
    """Refuse a strategy that is not known; one without a closed form can only be simulated."""
    from seamlessflow.scheduler.state.accounts.closed_form import STRATEGIES

    if strategy is None or strategy in STRATEGIES:
        return
    if not simulated:
        text = f"a plan knows {', '.join(STRATEGIES)}, and with --config all that simulate knows"
        raise typer.BadParameter(f"strategy {strategy}: {text}")
    check_strategies([strategy])


def _plan_recorded(out: Path | None, strategy: str | None, lag: int | None) -> None:
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.infra.kafka.whole_topic import read_topic
    from seamlessflow.processes.cluster import kafka_to_audit
    from seamlessflow.rehearsal.directory import scale_of
    from seamlessflow.reports.measured_step import measured_step
    from seamlessflow.reports.split_plan import planned
    from seamlessflow.schemas.topics import CONTROL

    skipped, scale = Skipped(), scale_of(out)
    with kafka_to_audit(out) as kafka:
        records = [item.record for item in read_topic(kafka, CONTROL, skipped)]
    step = measured_step(records).divided(scale)
    if scale != 1:
        typer.echo(f"a rehearsal: its times are divided by its scale, {scale:g}")
    cluster, text = planned(step, strategy, lag)
    _check_rollout(cluster, f"{cluster.gang} devices train")
    typer.echo(_measured(step))
    if text:
        typer.echo(f"{text}\n")
    print_plan(cluster)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)


def _measured(step: "MeasuredStep") -> str:
    work, shares = step.work, step.spent.shares()
    parts = ", ".join(
        f"{name.replace('_', '-')} {share:.0%}" for name, share in shares.items() if share >= 0.005
    )
    return (
        f"measured over {step.steps} steps of {step.step_s:.3g} s: R {work.rollout:.3g} and "
        f"T {work.train:.3g} device seconds a step, {work.switch:.3g} s for a change to training "
        f"and back, {work.load:.3g} s a device for loading and recomputing, "
        f"{work.latency:.3g} s a group\n"
        f"idle {step.spent.idle_share:.0%}: {parts}\n"
    )


def _plan_config(path: Path, strategy: str | None, lag: int | None) -> None:
    from dataclasses import replace

    from seamlessflow.checks.callables import strategy_faults
    from seamlessflow.config_file import load
    from seamlessflow.device_defaults import by_modelled_devices
    from seamlessflow.each_policy import left_out
    from seamlessflow.reports import simulated_split as simulated
    from seamlessflow.reports.simulated_workers import (
        modelled_as,
        with_own_work,
        with_own_workers,
    )
    from seamlessflow.reports.split_plan import choices, planned

    config = with_own_work(load(path, strategy_faults, by_modelled_devices))
    if notice := left_out(config):
        typer.echo(f"! {notice}", err=True)
    section, line = with_own_workers(config, path)
    config = config.model_copy(update={"simulation": section})
    cluster = simulated.as_configured(config)
    kinds = simulated.kinds_in_order(config)
    for text in filter(None, (line, modelled_as(config, section), kinds)):
        typer.echo(text)
    lag = config.run.lag if lag is None else lag
    name = strategy or config.scheduler.policy
    step = simulated.present_step(config, name, lag)
    typer.echo(_measured(step))
    work = replace(step.work, switch=step.work.switch or simulated.change_s(cluster))
    planned_cluster, _ = planned(replace(step, work=work), name, lag)
    compared = choices(planned_cluster, simulated.tried_gangs(config))
    steps = simulated.steps_each(config, len(compared))
    rows = [
        (choice, *simulated.simulated_choice(config, planned_cluster, choice, steps))
        for choice in compared
    ]
    print_plan(planned_cluster, [(choice, figures) for choice, figures, _ in rows], steps)
    for notice in dict.fromkeys(notice for _, _, notices in rows for notice in notices):
        if notice:
            typer.echo(f"! {notice}", err=True)


def print_plan(
    cluster: "PlannedCluster",
    rows: "Sequence[tuple[SplitChoice, SimulatedFigures | None]] | None" = None,
    steps: int = 0,
) -> None:
    """Print the choices of a plan, with what `rows` say of their simulations if there were any, of
    so many `steps` each.
    """
    from seamlessflow.reports.split_plan import advice, as_simulated, choices

    typer.echo(_row((*_COLUMNS, *(_SIMULATED if rows else ()))))
    for split, simulated in rows or [(choice, None) for choice in choices(cluster)]:
        figures = tuple[str, ...]()
        if simulated is not None:
            idle = f"{simulated.spent.idle_share:.0%}"
            figures = (f"{simulated.step_s:.2f}", idle, f"{simulated.staleness:.2f}")
        typer.echo(_row((*_predicted(split, cluster.devices), *figures)))
    text = f"; the simulated figures count, of {steps} steps each" if rows else ""
    typer.echo(f"step s, idle and limit are estimates, of a closed form{text}\n")
    compared = choices(cluster) if rows is None else as_simulated(rows)
    for sentence in advice(cluster, compared):
        typer.echo(sentence)


def _predicted(split: "SplitChoice", devices: int) -> tuple[str, ...]:
    prediction = split.prediction
    if not prediction.limit:  # it chooses its gang for each step
        return split.strategy, "its choice", str(split.lag), "-", "-", "-"
    gang = f"{split.gang} of {devices}"
    return (
        split.strategy,
        gang,
        str(split.lag),
        f"{prediction.step:.2f}",
        f"{prediction.idle:.0%}",
        prediction.limit,
    )


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
