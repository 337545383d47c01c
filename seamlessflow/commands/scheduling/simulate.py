"""The command `seamlessflow simulate`: strategies compared on a modelled cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamlessflow.commands.scheduling.options import (
    KeptMeasures,
    RecordedRun,
    RunOnKafka,
    check_strategies,
    measured_sections,
)
from seamlessflow.infra.errors import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seamlessflow.config import RunConfig
    from seamlessflow.lab.simulation.cluster import ModelledCluster
    from seamlessflow.lab.simulation.figures import SimulatedFigures
    from seamlessflow.lab.simulation.settings import SimulationSection
    from seamlessflow.lab.simulation.simulator import SimulatedRun
    from seamlessflow.scheduler.settings import SchedulerSettings

_COLUMNS = (
    *("strategy", "step s", "ideal s", "tokens/s", "idle", "under-filled", "waiting"),
    *("switching", "loading", "recomputing", "staleness", "oldest", "switches"),
)
_PACED = ("recycled", "stopped", "over age")
"""Further columns of a run whose pacing has extra groups or redundancy."""
_MOST_WORKERS, _MOST_DEVICES = 100_000, 1_000


def _workers_with(tags: str) -> Any:
    return typer.Option(min=0, max=_MOST_WORKERS, help=f"Workers with {tags}.")


_WholeBatches = Annotated[
    bool | None,
    typer.Option(
        "--whole-batches",
        help="One batch in flight, trained as a whole, as the published one step off.",
    ),
]


def simulate(
    config: Annotated[
        Path | None,
        typer.Option(
            help="Run configuration; its sections simulation, device_model, run, scheduler, "
            "pacing, and its workers if simulation names none."
        ),
    ] = None,
    recorded: RecordedRun = None,
    kafka: RunOnKafka = False,
    measured: KeptMeasures = None,
    rollout: Annotated[int | None, _workers_with("the tag rollout alone")] = None,
    train: Annotated[int | None, _workers_with("the tag train alone")] = None,
    both: Annotated[int | None, _workers_with("both tags")] = None,
    devices: Annotated[
        int, typer.Option(min=1, max=_MOST_DEVICES, help="Devices of each of these workers.")
    ] = 8,
    hardware: Annotated[str | None, typer.Option(help="Device, such as H100 or H20.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, such as Qwen3-32B.")] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="Strategy, or module:function; repeat.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=3, help="Optimizer steps.")] = None,
    lag: Annotated[int | None, typer.Option(min=0, help="As run.lag.")] = None,
    whole_batches: _WholeBatches = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all draws.")] = None,
    timelines: Annotated[
        Path | None, typer.Option(help="Folder for a page of each strategy's timeline.")
    ] = None,
) -> None:
    """Compare scheduling strategies on a modelled cluster, before a run (docs/scheduling/plan.md).

    Needs neither Kafka nor a device. Options count over the file, and both over a recorded run;
    `seamlessflow settings simulation` explains that section, and so for device_model.
    """
    check_strategies(strategy or ())
    workers = _workers(
        {("rollout",): rollout, ("train",): train, ("rollout", "train"): both}, devices
    )
    simulation = {"workers": workers, "strategies": strategy, "seed": seed}
    simulation |= {"whole_batches": whole_batches}
    device_model = {"hardware": hardware, "model": model}
    options: dict[str, dict[str, Any]] = {"simulation": simulation, "device_model": device_model}
    options["run"] = {"steps": steps, "lag": lag}
    loaded = _loaded(config, options, measured_sections(recorded, kafka, measured))
    _make(timelines)
    cluster, compared = _checked(loaded, config)
    if not _compare(loaded, cluster, compared, timelines):
        raise typer.Exit(ExitStatus.LASTING)


def _compare(
    config: "RunConfig",
    cluster: "ModelledCluster",
    compared: "Sequence[SchedulerSettings]",
    timelines: Path | None,
) -> bool:
    """Print the figures of each strategy; return False if none has any, or if one failed."""
    from seamlessflow.lab.simulation.figures import figures, why_none
    from seamlessflow.reports.simulated_workers import held_back, without_room
    from seamlessflow.scheduler.decisions.strategies.registry import StrategyFailed

    columns, any_found, any_failed = _headed(config), False, False
    for settings in compared:
        name = settings.scheduler.policy
        try:
            run = _simulated(settings, cluster, config.simulation)
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
    """Print the head of the table; return its columns."""
    paced = bool(config.pacing.extra_groups or config.pacing.redundancy)
    columns = (*_COLUMNS, *(_PACED if paced else ()))
    typer.echo("  ".join(f"{name:>{_width(name)}}" for name in columns))
    return columns


def _workers(
    lots: "Mapping[tuple[str, ...], int | None]", devices: int
) -> list[dict[str, Any]] | None:
    """Return the lots of workers that were asked for; None: those of the file."""
    workers = [
        {"count": count, "tags": tags, "devices": devices} for tags, count in lots.items() if count
    ]
    if not workers and any(count is not None for count in lots.values()):
        raise typer.BadParameter("--rollout, --train and --both leave no worker")
    return workers or None


def _loaded(
    config: Path | None, options: dict[str, dict[str, Any]], measured: dict[str, Any]
) -> "RunConfig":
    from seamlessflow.checks.callables import strategy_faults
    from seamlessflow.config_file import parse, sections_of
    from seamlessflow.device_defaults import by_modelled_devices
    from seamlessflow.lab.calibration.sections import under
    from seamlessflow.reports.simulated_workers import with_own_work

    sections = dict(sections_of(config)) if config is not None else {}
    for section, values in options.items():
        chosen = {name: value for name, value in values.items() if value is not None}
        if chosen:
            sections[section] = {**sections.get(section, {}), **chosen}
    # Of a file its own run is the one to simulate.
    shown = {
        name: dict(settings)
        for name, settings in measured.items()
        if config is None or name != "run"
    }
    if "workers" in sections and "simulation" in shown:
        del shown["simulation"]["workers"]
    values = under(sections, shown)
    return with_own_work(parse(values, config, strategy_faults, by_modelled_devices))


def _checked(
    config: "RunConfig", path: Path | None
) -> "tuple[ModelledCluster, list[SchedulerSettings]]":
    """Return the cluster and the settings with each strategy, before the first is simulated."""
    from seamlessflow.each_policy import left_out
    from seamlessflow.reports.simulated_split import as_configured
    from seamlessflow.reports.simulated_workers import modelled_as, with_own_workers
    from seamlessflow.scheduler.settings import SchedulerSettings

    if notice := left_out(config):
        typer.echo(f"! {notice}", err=True)
    section, line = with_own_workers(config, path)
    cluster = as_configured(config.model_copy(update={"simulation": section}))
    for text in filter(None, (line, modelled_as(config, section))):
        typer.echo(text)
    return cluster, [
        SchedulerSettings(
            run=config.run,
            scheduler=config.scheduler.model_copy(update={"policy": name}),
            pacing=config.pacing,
        )
        for name in config.simulation.strategies
    ]


def _simulated(
    settings: "SchedulerSettings", cluster: "ModelledCluster", section: "SimulationSection"
) -> "SimulatedRun":
    from seamlessflow.lab.simulation.simulator import simulate_going_on
    from seamlessflow.lab.simulation.workload import Workload

    name, steps = settings.scheduler.policy, settings.run.steps
    workload = Workload(section.workload, section.seed)
    return simulate_going_on(
        settings,
        cluster,
        workload,
        lambda done: _show(name, done, steps),
        section.whole_batches,
    )


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
    """Show the number of steps on a terminal, in one line that the figures replace."""
    import sys

    if sys.stderr.isatty():
        end = "\r" if done < steps else "\r\x1b[K"
        print(f"{strategy}: step {done} of {steps}", end=end, file=sys.stderr, flush=True)
