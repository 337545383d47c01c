"""The command `seamlessflow show`: a session's tree of tokens."""

from pathlib import Path
from typing import Annotated

import typer


def show(
    session: Annotated[
        str | None,
        typer.Argument(help="Id of the session; without it, the last sessions are listed."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of a run, live or ended; by default SEAMLESSFLOW_KAFKA__*."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show a row for each token.")] = False,
    records: Annotated[
        bool, typer.Option("--records", help="All its records on all topics instead of the tree.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, help="Number of sessions to list.")] = 20,
) -> None:
    """Show a session as it is on the log: its tree of tokens, masks, versions and match rules."""
    from rich.console import RenderableType

    from infra.kafka.unreadable import Skipped
    from seamlessflow.inspection.sessions.list_view import list_view
    from seamlessflow.inspection.sessions.log import load_session, recent_trajectories
    from seamlessflow.inspection.sessions.record_view import records_view
    from seamlessflow.inspection.sessions.records import session_records
    from seamlessflow.inspection.sessions.tree_view import session_view
    from seamlessflow.inspection.wide_console import wide_console
    from seamlessflow.processes.cluster import kafka_to_inspect

    console, skipped = wide_console(), Skipped()
    with kafka_to_inspect(out) as kafka:
        if session is None:
            view: RenderableType = list_view(recent_trajectories(kafka, count, skipped))
        else:
            found = load_session(kafka, session, skipped)
            spell = found.tokenizer.decode if found.tokenizer else None
            if records:
                session_id = found.session.opened.session_id
                view = records_view(session_records(kafka, session_id, skipped), spell)
            else:
                view = session_view(found.session, spell, tokens)
    console.print(view)
    for notice in skipped.notices:
        console.print(f"! {notice}", style="yellow", highlight=False, markup=False)
