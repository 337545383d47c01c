"""The command `seamlessflow rehearse`: a run on modelled devices, before one on real ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamlessflow.commands.options import WithConsole
from seamlessflow.commands.scheduling.options import (
    KeptMeasures,
    RecordedRunOption,
    RunOnKafka,
    measured_sections,
)

if TYPE_CHECKING:
    from seamlessflow.config import RunConfig
    from seamlessflow.config_file import Check
    from seamlessflow.processes.stopping import Stop
    from seamlessflow.rehearsal.rehearsal import Rehearsed
    from seamlessflow.watching.display import Display

LATER = "the next rehearsal begins anew and replaces"
_MEASURED = ("device_model", "rollout")
"""Sections that a rehearsal takes from a recorded run; all others are its own run's."""


def rehearse(
    config: Annotated[
        Path, typer.Option(help="Run configuration; its section device_model names the devices.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the rehearsal; by default OUT/rehearsal.")
    ] = None,
    recorded: RecordedRunOption = None,
    kafka: RunOnKafka = False,
    measured: KeptMeasures = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps; by default run.steps.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="Factor for all device times; by default device_model.scale."),
    ] = None,
    pages: WithConsole = False,
) -> None:
    """Rehearse a run: all its processes, Kafka and agents are real, only the devices are modelled.

    It shows what steps would take and what the software would do, on a machine without these
    devices. It ends with status 78 if this machine was too small to show that; see
    docs/scheduling/rehearsal.md.
    """
    from seamlessflow.checks.check import before_training
    from seamlessflow.rehearsal.rehearsal import rehearsal_of

    if scale is not None and scale <= 0:
        raise typer.BadParameter("--scale must be greater than 0")
    measures = measured_sections(recorded, kafka, measured)
    # The rehearsed run is checked: the real run's devices need not be on this machine.
    loaded = _loaded(
        config, measures, lambda run: before_training(rehearsal_of(run, out, steps, scale))
    )
    from seamlessflow.infra.errors import ExitStatus
    from seamlessflow.rehearsal.rehearsal import rehearse as run
    from seamlessflow.rehearsal.view import view
    from seamlessflow.runs.training_run import shown
    from seamlessflow.terminal import long_job_console

    rehearsal = rehearsal_of(loaded, out, steps, scale)
    console = long_job_console()

    def work(shows: "Display", stop: "Stop") -> "Rehearsed":
        return run(rehearsal, shows, stop)

    result = shown(rehearsal, console, work, "rehearsal", LATER, pages)
    console.print(view(result))
    if result.distorted or result.outcome.failed:
        raise typer.Exit(ExitStatus.LASTING)


def _loaded(config: Path, measures: Mapping[str, Any], check: "Check") -> "RunConfig":
    """Return a file's run with the measured sections. No weights are fetched for it."""
    from seamlessflow.config_file import parse, sections_of
    from seamlessflow.device_defaults import by_modelled_devices
    from seamlessflow.lab.calibration.sections import under
    from seamlessflow.named_models import Fetched

    used = {name: measures[name] for name in _MEASURED if name in measures}
    sections = under(sections_of(config), used)
    return parse(sections, config, check, by_modelled_devices, Fetched.WITHOUT_WEIGHTS)
