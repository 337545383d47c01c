"""Options that commands in this folder share: strategies, and a recorded run that is measured."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

RecordedRunOption = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Directory of a live or ended run, whose rates and workload are measured."
    ),
]
RunOnKafka = Annotated[
    bool,
    typer.Option("--kafka", help="Measure the run on the Kafka in SEAMLESSFLOW_KAFKA__* instead."),
]
KeptMeasures = Annotated[
    Path | None,
    typer.Option(help="File for the measured values, written as configuration sections."),
]


def check_strategies(names: Iterable[str]) -> None:
    """Refuse a name that stands for no strategy, before anything is read."""
    from seamlessflow.scheduler.decisions.strategies.registry import UnknownStrategy, named

    for name in names:
        try:
            named(name)
        except UnknownStrategy as error:
            raise typer.BadParameter(str(error), param_hint="--strategy") from error


def measured_sections(recorded: Path | None, kafka: bool, keep: Path | None) -> dict[str, Any]:
    """Return configuration sections as a recorded run shows them; none if no run is named.

    They are printed as YAML, and written to `keep`. Raises `NoRunData` and `TooShort`.
    """
    if recorded is not None and kafka:
        raise typer.BadParameter("give one of --from and --kafka")
    if recorded is None and not kafka:
        if keep is not None:
            raise typer.BadParameter("--measured needs --from or --kafka")
        return {}
    import yaml

    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.lab.calibration.recorded_run import read_run
    from seamlessflow.lab.calibration.sections import at_scale, sections
    from seamlessflow.processes.cluster import kafka_to_audit
    from seamlessflow.rehearsal.directory import scale_of

    skipped = Skipped()
    scale = scale_of(recorded)
    with kafka_to_audit(recorded) as kafka_settings:
        measured = at_scale(sections(read_run(kafka_settings, skipped)), scale)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)
    text = yaml.safe_dump(measured, sort_keys=False)
    if scale != 1:
        typer.echo(f"# of a rehearsal: device_model is divided by its scale, {scale:g}")
    typer.echo(f"# measured; a value that is given counts over it\n{text}")
    if keep is not None:
        keep.write_text(text, encoding="utf-8")
    return measured
