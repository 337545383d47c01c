"""The commands `seamlessflow schemas releases`, `check`, `export` and `copy`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The schemas of the records on the log, and their releases.")


@app.command()
def releases() -> None:
    """List the releases whose records this one reads, and can write for readers of them.

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
    """List the processes that run with their releases: can all of them read this one?

    The exit status is 0 if they can: the pin can go. It is 1 if one is older or none is seen.
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
    directory: Annotated[Path, typer.Argument(help="Directory for the files; made if missing.")],
    every_version: Annotated[
        bool, typer.Option("--every-version", help="Also all versions that old logs may hold.")
    ] = False,
) -> None:
    """Write the Avro schema of each record as Record.FINGERPRINT.avsc.

    Each file is self-contained: types that it refers to are defined in it. A record on the log
    begins with C3 01 and the fingerprint (8 bytes), then comes the Avro body.
    """
    from seamlessflow.recorded.interchange.schema_files import write_schemas

    written = write_schemas(directory, every_version)
    typer.echo(f"wrote {len(written)} schemas to {directory}")


@app.command()
def copy(
    topic: Annotated[str, typer.Argument(help="Topic of this project, without prefix.")],
    to: Annotated[str, typer.Option(help="Topic that gets the copy, without prefix; may exist.")],
    registry: Annotated[str, typer.Option(help="URL of the schema registry.")],
    framing: Annotated[str, typer.Option(help="Form of the copied records: confluent.")],
) -> None:
    """Copy a topic, as long as it is now, into the wire format of Confluent's schema registry.

    Partition, key, headers and timestamp of each record stay. A copy that was cut off, or whose
    topic has grown, goes on where it ended. No record is copied twice: the copy's place is
    committed with the records. Schemas are registered as TARGET-seamlessflow.RECORD.
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
