"""Steps in `seamlessflow plan`: their work comes from options, a configuration or a run.

It compares the choices for strategy, split and lag, and prints advice.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seamlessflow.commands.scheduling.options import check_strategies

if TYPE_CHECKING:
    from seamlessflow.lab.simulation.figures import SimulatedFigures
    from seamlessflow.lab.simulation.measured_step import MeasuredStep
    from seamlessflow.lab.simulation.split_plan import PlannedCluster, SplitChoice
    from seamlessflow.scheduler.state.accounts.closed_form import StepWork

_MOST_DEVICES = 100_000
_COLUMNS = ("strategy", "train on", "lag", "step s", "idle", "limit")
_SIMULATED = ("simulated step s", "idle", "staleness")
_WIDTHS = (13, 11, 4, 8, 6, 19, 17, 6, 10)
_SOURCES = "give one of: --rollout-s with --train-s and --devices; --config; --out; --kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenWork:
    """Options for a step's work in seconds and for the devices; None for those not given."""

    rollout: float | None
    train: float | None
    switch: float | None
    load: float | None
    latency: float | None
    devices: str | None
    train_devices: int | None

    @property
    def given_any(self) -> bool:
        """True if any of these options is given."""
        return any(value is not None for value in asdict(self).values())

    @property
    def count(self) -> int | None:
        """Device count, or None if it is not given. Raises `typer.BadParameter`."""
        text = self.devices
        if text is None:
            return None
        if not text.isdecimal() or not 1 <= int(text) <= _MOST_DEVICES:
            limits = f"a number of 1 to {_MOST_DEVICES} (of memory, with --model)"
            raise typer.BadParameter(f"--devices {text}: {limits}")
        return int(text)


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options when steps are planned. Only one source of work is used."""

    work: GivenWork
    config: Path | None
    out: Path | None
    kafka: bool
    strategy: str | None
    lag: int | None

    @property
    def sources(self) -> int:
        """Count of the given work sources."""
        return self.work.given_any + (self.config is not None) + (self.out is not None) + self.kafka


def plan_steps(options: StepOptions) -> None:
    """Print the choices and the advice. Raises `typer.BadParameter`."""
    count = options.work.count
    if options.sources != 1:
        raise typer.BadParameter(_SOURCES)
    _check(options.strategy, simulated=options.config is not None)  # before anything is read
    if options.config is not None:
        _plan_config(options.config, options.strategy, options.lag)
    elif options.work.given_any:
        _plan_given(options, count)
    else:
        _plan_recorded(options.out, options.strategy, options.lag)


def _plan_given(options: StepOptions, devices: int | None) -> None:
    from seamlessflow.lab.simulation.split_plan import PlannedCluster
    from seamlessflow.scheduler.state.accounts.closed_form import COLOCATED, MULTIPLEXED

    work = _work(options.work, devices)
    total = devices or 1
    name = options.strategy or MULTIPLEXED
    train_devices = options.work.train_devices
    ahead = 1 if options.lag is None else options.lag
    if name == COLOCATED and train_devices not in (None, total):
        text = f"with --strategy colocated all {total} devices train"
        raise typer.BadParameter(f"--train-devices {train_devices}: {text}")
    gang = train_devices or total
    cluster = PlannedCluster(work=work, devices=total, gang=gang, lag=ahead, strategy=name)
    _check_rollout(cluster, f"--train-devices {gang}")
    _print_plan(cluster)


def _check_rollout(cluster: "PlannedCluster", split: str) -> None:
    """Refuse a split that leaves no device to roll out."""
    from seamlessflow.scheduler.state.accounts.closed_form import DISAGGREGATED

    if cluster.strategy == DISAGGREGATED and cluster.gang >= cluster.devices:
        text = f"{_there_are(cluster.devices)}, and disaggregated needs one more that rolls out"
        raise typer.BadParameter(f"{split}: {text}")


def _there_are(devices: int) -> str:
    return "there is 1 device" if devices == 1 else f"there are {devices} devices"


def _work(work: GivenWork, devices: int | None) -> "StepWork":
    from seamlessflow.scheduler.state.accounts.closed_form import StepWork

    if not work.rollout or not work.train or devices is None:
        raise typer.BadParameter("--rollout-s and --train-s above 0, and --devices, go together")
    if work.train_devices is not None and work.train_devices > devices:
        raise typer.BadParameter(f"--train-devices {work.train_devices}: {_there_are(devices)}")
    return StepWork(
        rollout=work.rollout,
        train=work.train,
        switch=work.switch or 0.0,
        load=work.load or 0.0,
        latency=work.latency or 0.0,
    )


def _check(strategy: str | None, simulated: bool) -> None:
    """Refuse an unknown strategy; a strategy without a closed form can only be simulated."""
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
    from seamlessflow.lab.simulation.measured_step import measured_step
    from seamlessflow.lab.simulation.split_plan import planned
    from seamlessflow.processes.cluster import kafka_to_audit
    from seamlessflow.rehearsal.directory import scale_of
    from seamlessflow.schemas.topics import CONTROL

    skipped = Skipped()
    scale = scale_of(out)
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
    _print_plan(cluster)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)


def _measured(step: "MeasuredStep") -> str:
    work = step.work
    shares = step.spent.shares()
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

    from seamlessflow.checks.callables import simulation_faults
    from seamlessflow.config_file import load, no_task
    from seamlessflow.device_defaults import by_modelled_devices
    from seamlessflow.each_policy import left_out
    from seamlessflow.lab.simulation.split_plan import choices, planned
    from seamlessflow.named_models import Fetched
    from seamlessflow.reports import simulated_split as simulated
    from seamlessflow.reports.simulated_workers import (
        modelled_as,
        with_own_work,
        with_own_workers,
    )
    from seamlessflow.reports.variant import cluster_of

    fetched = Fetched.WITHOUT_WEIGHTS
    config = with_own_work(load(path, simulation_faults, by_modelled_devices, fetched, no_task))
    if notice := left_out(config):
        typer.echo(f"! {notice}", err=True)
    section, line = with_own_workers(config, path)
    config = config.model_copy(update={"simulation": section})
    cluster = cluster_of(config)
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
    _print_plan(planned_cluster, [(choice, figures) for choice, figures, _ in rows], steps)
    for notice in dict.fromkeys(notice for _, _, notices in rows for notice in notices):
        if notice:
            typer.echo(f"! {notice}", err=True)


def _print_plan(
    cluster: "PlannedCluster",
    rows: "Sequence[tuple[SplitChoice, SimulatedFigures | None]] | None" = None,
    steps: int = 0,
) -> None:
    """Print a plan's choices; `rows` adds the figures from simulations with `steps` steps each."""
    from seamlessflow.lab.simulation.split_plan import advice, as_simulated, choices

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
