"""The command `seamlessflow trace`: a waterfall of a session, from its task to the weights."""

from typing import Annotated

import typer

from seamlessflow.commands.options import Out


def trace(
    session: Annotated[str, typer.Argument(help="Id or name of the session.")],
    out: Out = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Topic, partition and offset of each record.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show when what happened to a session, from its task to the step that trained its tokens.

    All of it comes from the log, whether or not traces were exported.
    """
    import json

    from seamlessflow.console import wide_console
    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.show.log import load_history
    from seamlessflow.recorded.trace.view import waterfall_json, waterfall_view
    from seamlessflow.recorded.trace.waterfall import waterfall

    console, skipped = wide_console(), Skipped()
    with kafka_to_inspect(out) as kafka:
        history = waterfall(*load_history(kafka, session, skipped))
    if as_json:
        typer.echo(json.dumps(waterfall_json(history), indent=1))
    else:
        console.print(waterfall_view(history, console.width, offsets))
    for notice in skipped.notices:
        if as_json:
            typer.echo(f"! {notice}", err=True)
        else:
            console.print(f"! {notice}", style="yellow", highlight=False, markup=False)
