"""The command `seamlessflow plan`: idle share and step time by strategy and split."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.simulation.cluster import ModelledCluster
    from scheduler.simulation.figures import SimulatedFigures
    from scheduler.state.accounts.closed_form import StepWork
    from seamlessflow.config import RunConfig
    from seamlessflow.reports.measured_step import MeasuredStep
    from seamlessflow.reports.split_plan import PlannedCluster, SplitChoice

_COLUMNS = ("strategy", "train on", "lag", "step s", "idle", "limit")
_SIMULATED = ("simulated step s", "idle", "staleness")
_WIDTHS = (13, 11, 4, 8, 6, 19, 17, 6, 10)
_STEPS = 8
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
    rollout_s: Annotated[
        float | None, typer.Option(min=0, help="R: device seconds of rollout of a step.")
    ] = None,
    train_s: Annotated[
        float | None, typer.Option(min=0, help="T: device seconds of training of a step.")
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="G: devices in all.")] = None,
    train_devices: Annotated[
        int | None, typer.Option(min=1, help="g: devices with the tag train.  [default: all]")
    ] = None,
    switch_s: Annotated[
        float | None, typer.Option(min=0, help="Change to training and back.  [default: 0]")
    ] = None,
    load_s: Annotated[
        float | None, typer.Option(min=0, help="Stand-still for new weights.  [default: 0]")
    ] = None,
    group_s: Annotated[
        float | None, typer.Option(min=0, help="A group's latency.  [default: 0]")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy of now.  [default: multiplexed]")
    ] = None,
    lag: Annotated[int | None, typer.Option(min=0, help="As run.lag.")] = None,
) -> None:
    """Predict idle share and step time by strategy and split, and say what would shorten a step.

    From given work, from a configuration (simulated) or from measured steps; docs/scheduling.md.
    """
    given = {"rollout": rollout_s, "train": train_s, "switch": switch_s, "load": load_s}
    given["latency"] = group_s
    flags = any(value is not None for value in (*given.values(), devices, train_devices))
    if flags + (config is not None) + (out is not None) + kafka != 1:
        raise typer.BadParameter(_SOURCES)
    _known(strategy)  # before anything is read
    if config is not None:
        _plan_config(config, strategy, lag)
    elif flags:
        _plan_given(given, devices, train_devices, strategy, lag)
    else:
        _plan_recorded(out, strategy, lag)


def _plan_given(
    given: "Mapping[str, float | None]",
    devices: int | None,
    train_devices: int | None,
    strategy: str | None,
    lag: int | None,
) -> None:
    work, total = _work(given, devices, train_devices), devices or 1
    _print(_cluster(work, total, train_devices or total, strategy, 1 if lag is None else lag))


def _work(
    given: "Mapping[str, float | None]", devices: int | None, train_devices: int | None
) -> "StepWork":
    from scheduler.state.accounts.closed_form import StepWork

    if not given["rollout"] or not given["train"] or devices is None:
        raise typer.BadParameter("--rollout-s and --train-s above 0, and --devices, go together")
    if train_devices is not None and train_devices > devices:
        raise typer.BadParameter(f"--train-devices {train_devices}: there are {devices} devices")
    return StepWork(**{name: value or 0.0 for name, value in given.items()})


def _cluster(
    work: "StepWork", devices: int, gang: int, strategy: str | None, lag: int, unit: int = 1
) -> "PlannedCluster":
    from seamlessflow.reports.split_plan import PlannedCluster

    return PlannedCluster(
        work=work, devices=devices, gang=gang, lag=lag, strategy=_known(strategy), unit=unit
    )


def _known(strategy: str | None, of_file: bool = False) -> str:
    from scheduler.state.accounts.closed_form import MULTIPLEXED, STRATEGIES

    name = strategy or MULTIPLEXED
    if name not in STRATEGIES:
        known = f"a plan knows {', '.join(STRATEGIES)}"
        if of_file:
            raise typer.BadParameter(f"scheduler.policy {name}: {known}; name one with --strategy")
        raise typer.BadParameter(f"strategy {name}: {known}")
    return name


def _plan_recorded(out: Path | None, strategy: str | None, lag: int | None) -> None:
    from infra.kafka.unreadable import Skipped
    from infra.kafka.whole_topic import read_topic
    from schemas.topics import CONTROL
    from seamlessflow.processes.cluster import kafka_to_audit
    from seamlessflow.rehearsal.directory import scale_of
    from seamlessflow.reports.measured_step import measured_step

    skipped, scale = Skipped(), scale_of(out)
    with kafka_to_audit(out) as kafka:
        records = [item.record for item in read_topic(kafka, CONTROL, skipped)]
    found = measured_step(records).divided(scale)
    if scale != 1:
        typer.echo(f"a rehearsal: its times are divided by its scale, {scale:g}")
    typer.echo(_measured(found))
    wanted = 1 if lag is None else lag
    _print(_cluster(found.work, found.devices, found.able, strategy, wanted, found.unit))
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)


def _measured(found: "MeasuredStep") -> str:
    work, shares = found.work, found.spent.shares()
    parts = ", ".join(
        f"{name.replace('_', '-')} {share:.0%}" for name, share in shares.items() if share >= 0.005
    )
    return (
        f"measured over {found.steps} steps of {found.step_s:.3g} s: R {work.rollout:.3g} and "
        f"T {work.train:.3g} device seconds a step, {work.switch:.3g} s for a change to training "
        f"and back, {work.load:.3g} s a device for loading and recomputing, "
        f"{work.latency:.3g} s a group\n"
        f"idle {found.spent.idle_share:.0%}: {parts}\n"
    )


def _plan_config(path: Path, strategy: str | None, lag: int | None) -> None:
    from dataclasses import replace

    from scheduler.simulation.cluster import modelled
    from seamlessflow.config_file import load
    from seamlessflow.each_policy import left_out
    from seamlessflow.reports.measured_step import measured_step
    from seamlessflow.reports.simulated_split import change_s, simulated, split
    from seamlessflow.reports.simulated_workers import with_own_workers
    from seamlessflow.reports.split_plan import choices

    config = load(path)
    if notice := left_out(config):
        typer.echo(f"! {notice}", err=True)
    section, line = with_own_workers(config, path)
    cluster = modelled(section, config.device_model, config.rollout.update)
    if line:
        typer.echo(line)
    lag = config.run.lag if lag is None else lag
    name = _known(strategy or config.scheduler.policy, strategy is None)
    run, _ = simulated(config, cluster, name, lag, _STEPS)
    found = measured_step(run.control)
    typer.echo(_measured(found))
    work = replace(found.work, switch=found.work.switch or change_s(cluster))
    of = _cluster(work, found.devices, found.able, name, lag, found.unit)
    rows = [
        (one, _simulated(config, split(cluster, one.strategy, one.gang), one))
        for one in choices(of)
    ]
    _print(of, rows)


def _simulated(
    config: "RunConfig", cluster: "ModelledCluster", one: "SplitChoice"
) -> "SimulatedFigures | None":
    from scheduler.simulation.figures import figures
    from seamlessflow.reports.simulated_split import simulated

    return figures(*simulated(config, cluster, one.strategy, one.lag, _STEPS))


def _print(
    of: "PlannedCluster",
    rows: "Sequence[tuple[SplitChoice, SimulatedFigures | None]] | None" = None,
) -> None:
    from seamlessflow.reports.split_plan import advice, as_simulated, choices

    typer.echo(_row((*_COLUMNS, *(_SIMULATED if rows else ()))))
    for one, found in rows or [(one, None) for one in choices(of)]:
        told, figures = one.prediction, tuple[str, ...]()
        if found is not None:
            idle = f"{found.spent.idle_share:.0%}"
            figures = (f"{found.step_s:.2f}", idle, f"{found.staleness:.2f}")
        cells = (one.strategy, f"{one.gang} of {of.devices}", str(one.lag))
        typer.echo(_row((*cells, f"{told.step:.2f}", f"{told.idle:.0%}", told.limit, *figures)))
    typer.echo("")
    compared = choices(of) if rows is None else as_simulated(rows)
    for sentence in advice(of, compared):
        typer.echo(sentence)


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
