"""The command `seamlessflow export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seamlessflow.commands.options import (
    Groups,
    Offsets,
    Out,
    SessionNames,
    Since,
    Tasks,
    Until,
    Versions,
)


class _FileFormat(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"


class _Form(StrEnum):
    SESSIONS = "sessions"
    PRIME_RL = "prime-rl"
    VERL = "verl"
    TRL = "trl"
    ATIF = "atif"


ExportDirectory = Annotated[
    Path,
    typer.Option(help="Directory for the files; a new one, or one from an export to go on with."),
]
Format = Annotated[_FileFormat, typer.Option(help="File format.")]
FormOf = Annotated[
    _Form,
    typer.Option(
        "--form", help="Columns: tables with sessions and chains, or those that a framework reads."
    ),
]


def export(
    to: ExportDirectory,
    sessions: SessionNames = None,
    out: Out = None,
    form: FormOf = _Form.SESSIONS,
    format: Format = _FileFormat.PARQUET,
    groups: Groups = None,
    tasks: Tasks = None,
    offsets: Offsets = None,
    since: Since = None,
    until: Until = None,
    versions: Versions = None,
) -> None:
    """Write recorded sessions as Parquet or JSON lines, for analysis or another framework.

    Each table gets a file for each partition of `sessions`. If it is stopped or killed, the same
    command goes on where it ended. It reads up to the log's end at its first start.
    """
    from seamlessflow.commands.jobs.export import run_export
    from seamlessflow.recorded.export.exporting import ExportJob
    from seamlessflow.recorded.export.tables import JSONL
    from seamlessflow.recorded.select.options import selection

    chosen = selection(
        sessions or (), groups or (), tasks or (), offsets or (), since, until, versions
    )
    file_format = JSONL
    if format is _FileFormat.PARQUET:
        from seamlessflow.checks.packages import require

        require("parquet", "pyarrow")
        from seamlessflow.recorded.export.parquet_file import PARQUET

        file_format = PARQUET
    run_export(out, ExportJob(to, file_format, form.value, chosen))
