"""The commands `seamlessflow topics create`, `check` and `list`."""

from typing import Annotated

import typer

app = typer.Typer(help="The topics on a Kafka cluster (SEAMLESSFLOW_KAFKA__*).")


@app.command()
def create(
    replication: Annotated[
        int, typer.Option(help="Copies of each partition; -1: the cluster's own default.")
    ] = -1,
) -> None:
    """Create the topics that are missing, dead-letter topics included."""
    from infra.kafka.topics import create_topics
    from infra.settings import ProcessSettings, load
    from schemas.topics import TOPICS

    made = create_topics(load(ProcessSettings).kafka, TOPICS.values(), replication)
    for name in made:
        typer.echo(f"created {name}")
    if not made:
        typer.echo("all topics exist")


@app.command()
def check() -> None:
    """Compare the topics with the contract; the exit status is 1 if one differs or is missing."""
    from infra.settings import ProcessSettings, load
    from seamlessflow.inspection.topic_state import differences

    wrong = differences(load(ProcessSettings).kafka)
    for line in wrong:
        typer.echo(line, err=True)
    if wrong:
        raise typer.Exit(1)
    typer.echo("all topics are as they should be")


@app.command(name="list")
def list_() -> None:
    """List records and committed lag of every topic that exists."""
    from infra.settings import ProcessSettings, load
    from seamlessflow.inspection.topic_state import states, table
    from seamlessflow.inspection.wide_console import wide_console

    found = states(load(ProcessSettings).kafka)
    if found:
        wide_console().print(table(found))
    else:
        typer.echo("there are none; make them with: seamlessflow topics create")
