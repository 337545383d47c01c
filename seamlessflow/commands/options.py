"""Options that several commands share: the run to read, and the sessions to choose."""

from pathlib import Path
from typing import Annotated

import typer

SessionNames = Annotated[
    list[str] | None, typer.Argument(help="Session ids or names; by default all sessions.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Directory of a live or ended run; by default the Kafka in SEAMLESSFLOW_KAFKA__*."
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", help="Only this group's sessions; can be repeated.")
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", help="Only this task's sessions; can be repeated.")
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        help="Only sessions with events at these offsets in `sessions`: PARTITION:FROM-TO; can be "
        "repeated."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Only sessions that ended then or later, such as 2026-01-31T12:00."),
]
Until = Annotated[
    str | None, typer.Option(help="Only sessions that opened then or earlier; UTC without a zone.")
]
Versions = Annotated[
    str | None, typer.Option(help="Only sessions that these policy versions sampled: 7, 7-9 or 7-.")
]
WithConsole = Annotated[
    bool,
    typer.Option(
        "--console/--no-console", help="Serve pages about it in a browser while it goes on."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
