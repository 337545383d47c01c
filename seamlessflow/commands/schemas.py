"""The commands `seamlessflow schemas releases`, `check`, `export` and `copy`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Schemas for the records on the log, and their releases.")


@app.command()
def releases() -> None:
    """List the releases whose records this release reads, and can also write.

    SEAMLESSFLOW_KAFKA__WRITE_RELEASE pins what is written to one of them.
    """
    from seamlessflow.schemas.releases import releases as every_release

    history = every_release()
    for earlier, release in zip((None, *history), history, strict=False):
        changed = release.changed_since(earlier) if earlier else []
        what = f"{len(changed)} changed: {', '.join(changed)}" if changed else "none changed"
        first = f"{len(release.fingerprints)} records"
        this = " (this one)" if release is history[-1] else ""
        typer.echo(f"{release.version}{this}: {what if earlier else first}")


@app.command()
def check() -> None:
    """List the running processes with their releases: can all of them read this release?

    The exit status is 0 if they can: then the pin can go. It is 1 if a process is older, or if none
    is seen.
    """
    from seamlessflow.infra.settings import load
    from seamlessflow.upgrade import FleetSettings, check_fleet

    fleet = check_fleet(load(FleetSettings))
    for process in fleet.processes:
        typer.echo(str(process))
    for notice in fleet.notices:
        typer.echo(notice, err=True)
    typer.echo(fleet.verdict)
    if not fleet.passed:
        raise typer.Exit(1)


@app.command()
def export(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the files; it is made if it does not exist.")
    ],
    every_version: Annotated[
        bool,
        typer.Option("--every-version", help="Also write all versions that old logs may hold."),
    ] = False,
) -> None:
    """Write each record's Avro schema as Record.FINGERPRINT.avsc.

    Each file is self-contained: types that it refers to are defined in it. A record on the log
    begins with C3 01 and the fingerprint (8 bytes), then comes the Avro body.
    """
    from seamlessflow.recorded.interchange.schema_files import write_schemas

    written = write_schemas(directory, every_version)
    typer.echo(f"wrote {len(written)} schemas to {directory}")


@app.command()
def copy(
    topic: Annotated[str, typer.Argument(help="One of this project's topics, without prefix.")],
    to: Annotated[
        str, typer.Option(help="Topic that gets the copy, without prefix; it may exist.")
    ],
    registry: Annotated[str, typer.Option(help="The schema registry's URL.")],
    framing: Annotated[str, typer.Option(help="Wire format for the copied records: confluent.")],
) -> None:
    """Copy a topic, up to its present end, into the wire format of Confluent's schema registry.

    Each record keeps its partition, key, headers and timestamp. If a copy was cut off, or its topic
    has grown, the same command goes on where it ended. No record is copied twice: the copy's place
    is committed with the records. Schemas are registered as TARGET-seamlessflow.RECORD.
    """
    from seamlessflow.infra.settings import ProcessSettings, load
    from seamlessflow.recorded.interchange.topic_copy import copy_topic
    from seamlessflow.terminal import job_bar

    if framing != "confluent":
        raise typer.BadParameter(f"--framing {framing}: the framing is confluent")
    kafka = load(ProcessSettings).kafka
    doing = f"{topic} to {to}"
    with job_bar(doing) as show:
        copied = copy_topic(kafka, topic, to, registry, partial(show, doing))
    typer.echo(f"copied {copied.records} records of {topic} to {to}, {copied.garbage} left out")
    if copied.garbage:
        typer.echo("left out are records that no release writes (garbage)", err=True)
