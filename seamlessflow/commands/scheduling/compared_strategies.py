"""Comparison for `seamlessflow simulate`: the run to simulate, and a table with figures.

Each strategy is simulated on the same cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seamlessflow.commands.scheduling.options import check_strategies, measured_sections

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.lab.simulation.cluster import ModelledCluster
    from seamlessflow.lab.simulation.figures import SimulatedFigures
    from seamlessflow.lab.simulation.simulator import SimulatedRun

_COLUMNS = (
    *("strategy", "step s", "ideal s", "tokens/s", "idle", "under-filled", "waiting"),
    *("switching", "loading", "recomputing", "staleness", "oldest", "switches"),
)
_PACED = ("recycled", "stopped", "over age")
"""Further columns if pacing has extra groups or redundancy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The command's options; None for each that is not given."""

    config: Path | None
    recorded: Path | None
    """Directory with the run whose rates and workload are taken."""
    kafka: bool
    """True: take rates and workload from the run on the Kafka that environment variables name."""
    measured: Path | None
    """File for the measured values."""
    workers: Mapping[tuple[str, ...], int | None]
    """Worker counts by the workers' tags."""
    devices: int
    """Devices per worker."""
    hardware: str | None
    model: str | None
    strategies: Sequence[str] | None
    steps: int | None
    lag: int | None
    whole_batches: bool | None
    seed: int | None
    timelines: Path | None
    """Folder for timeline pages, one for each strategy."""

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the options as configuration sections. Raises `typer.BadParameter`."""
        simulation = {
            "workers": _workers(self.workers, self.devices),
            "strategies": self.strategies,
            "seed": self.seed,
            "whole_batches": self.whole_batches,
        }
        return {
            "simulation": simulation,
            "device_model": {"hardware": self.hardware, "model": self.model},
            "run": {"steps": self.steps, "lag": self.lag},
        }


def compare_strategies(options: SimulateOptions) -> bool:
    """Print each strategy's figures; return False if no strategy has any, or if one failed."""
    check_strategies(options.strategies or ())
    sections = options.sections()
    measured = measured_sections(options.recorded, options.kafka, options.measured)
    config = _loaded(options.config, sections, measured)
    _make(options.timelines)
    config, cluster = _checked(config, options.config)
    return _compare(config, cluster, options.timelines)


def _compare(config: "RunConfig", cluster: "ModelledCluster", timelines: Path | None) -> bool:
    from seamlessflow.lab.simulation.figures import figures, why_none
    from seamlessflow.reports.simulated_workers import held_back, without_room
    from seamlessflow.reports.variant import Variant, simulated
    from seamlessflow.scheduler.decisions.strategies.registry import StrategyFailed

    columns = _headed(config)
    any_found = False
    any_failed = False
    for name in config.simulation.strategies:
        on_step = partial(_show, name, steps=config.run.steps)
        try:
            run, settings = simulated(config, Variant(scheduler={"policy": name}), on_step)
        except StrategyFailed as error:
            any_failed = True
            typer.echo(f"! strategy {name} {error.reason}", err=True)
            continue
        measured = figures(run, settings, config.trainer.max_staleness)
        any_found = any_found or measured is not None
        if measured is None:
            typer.echo(f"{name:>{_width(_COLUMNS[0])}}  {why_none(run, settings)}")
        else:
            typer.echo(_cells(name, measured, columns))
        room = without_room(config.device_model, cluster, run.control)
        for notice in filter(None, (room, held_back(config, run))):
            typer.echo(f"! {name}: {notice}", err=True)
        _draw(run, name, timelines)
    return any_found and not any_failed


def _headed(config: "RunConfig") -> tuple[str, ...]:
    """Print the table's head; return its columns."""
    paced = bool(config.pacing.extra_groups or config.pacing.redundancy)
    columns = (*_COLUMNS, *(_PACED if paced else ()))
    typer.echo("  ".join(f"{name:>{_width(name)}}" for name in columns))
    return columns


def _workers(
    lots: Mapping[tuple[str, ...], int | None], devices: int
) -> list[dict[str, Any]] | None:
    """Return the worker lots that were asked for; None: those in the file."""
    workers = [
        {"count": count, "tags": tags, "devices": devices} for tags, count in lots.items() if count
    ]
    if not workers and any(count is not None for count in lots.values()):
        raise typer.BadParameter("--rollout, --train and --both leave no worker")
    return workers or None


def _loaded(
    config: Path | None, options: dict[str, dict[str, Any]], measured: dict[str, Any]
) -> "RunConfig":
    from seamlessflow.checks.callables import simulation_faults
    from seamlessflow.config_file import parse, sections_of
    from seamlessflow.device_defaults import by_modelled_devices
    from seamlessflow.lab.calibration.sections import under
    from seamlessflow.named_models import Fetched
    from seamlessflow.reports.simulated_workers import with_own_work

    sections = dict(sections_of(config)) if config is not None else {}
    for section, values in options.items():
        chosen = {name: value for name, value in values.items() if value is not None}
        if chosen:
            sections[section] = {**sections.get(section, {}), **chosen}
    # The run to simulate is the file's own one.
    shown = {
        name: dict(settings)
        for name, settings in measured.items()
        if config is None or name != "run"
    }
    if "workers" in sections and "simulation" in shown:
        del shown["simulation"]["workers"]
    values = under(sections, shown)
    fetched = Fetched.WITHOUT_WEIGHTS
    loaded = parse(values, config, simulation_faults, by_modelled_devices, fetched)
    return with_own_work(loaded)


def _checked(config: "RunConfig", path: Path | None) -> "tuple[RunConfig, ModelledCluster]":
    """Return the configuration with its workers, and the cluster, before the first simulation."""
    from seamlessflow.each_policy import left_out
    from seamlessflow.reports.simulated_workers import modelled_as, with_own_workers
    from seamlessflow.reports.variant import cluster_of

    if notice := left_out(config):
        typer.echo(f"! {notice}", err=True)
    section, line = with_own_workers(config, path)
    config = config.model_copy(update={"simulation": section})
    cluster = cluster_of(config)
    for text in filter(None, (line, modelled_as(config, section))):
        typer.echo(text)
    return config, cluster


def _make(folder: Path | None) -> None:
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"--timelines {folder}: {error.strerror}") from error


def _draw(run: "SimulatedRun", strategy: str, folder: Path | None) -> None:
    if folder is None:
        return
    from seamlessflow.commands.scheduling.timeline import write_timeline

    path = folder / f"{strategy.replace(':', '.')}.html"
    write_timeline(run.control, [path], f"Timeline of {strategy}, simulated")


def _cells(strategy: str, simulated: "SimulatedFigures", columns: tuple[str, ...]) -> str:
    shares = simulated.spent.shares()
    cells = (
        strategy,
        f"{simulated.step_s:.2f}",
        f"{simulated.ideal_s:.2f}",
        f"{simulated.tokens_s:,.0f}",
        f"{simulated.spent.idle_share:.1%}",
        *(
            f"{shares[name]:.1%}"
            for name in ("under_filled", "waiting", "switching", "loading", "recomputing")
        ),
        f"{simulated.staleness:.2f}",
        str(simulated.most_staleness),
        f"{simulated.switches:.1f}",
        *(f"{share:.1%}" for share in (simulated.recycled, simulated.stopped, simulated.over_age)),
    )
    named = zip(columns, cells, strict=False)  # the last ones only where pacing asks for them
    return "  ".join(f"{cell:>{_width(name)}}" for name, cell in named)


def _width(column: str) -> int:
    return 13 if column == _COLUMNS[0] else max(8, len(column))


def _show(strategy: str, done: int, steps: int) -> None:
    """Show how many steps are done on a terminal, in one line that the figures replace."""
    import sys

    if sys.stderr.isatty():
        end = "\r" if done < steps else "\r\x1b[K"
        print(f"{strategy}: step {done} of {steps}", end=end, file=sys.stderr, flush=True)
