"""Options of several commands: the run that they read, and the sessions that they choose."""

from pathlib import Path
from typing import Annotated

import typer

SessionNames = Annotated[
    list[str] | None, typer.Argument(help="Ids or names of sessions; by default all.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory of a run, live or ended; by default SEAMLESSFLOW_KAFKA__*."),
]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Sessions of a group; repeat.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Sessions of a task; repeat.")]
Offsets = Annotated[
    list[str] | None,
    typer.Option(help="Sessions with events there, as PARTITION:FROM-TO of `sessions`; repeat."),
]
Since = Annotated[
    str | None, typer.Option(help="Sessions that ended then or later, such as 2026-01-31T12:00.")
]
Until = Annotated[
    str | None, typer.Option(help="Sessions that opened then or earlier; UTC without a zone.")
]
Versions = Annotated[
    str | None, typer.Option(help="Sessions that these policy versions sampled: 7, 7-9 or 7-.")
]
WithConsole = Annotated[
    bool,
    typer.Option("--console/--no-console", help="Serve pages of it while it goes on."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
