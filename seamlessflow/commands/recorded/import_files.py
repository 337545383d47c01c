"""The command `seamlessflow import`."""

from pathlib import Path
from typing import Annotated

import typer

from seamlessflow.commands.options import Out

ImportedFiles = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Parquet or .jsonl files.", exists=True, dir_okay=False),
]
ImportPrefix = Annotated[
    str, typer.Option(help="Prefix of the topic to write: foreign. for foreign.trajectories.")
]
Train = Annotated[
    bool, typer.Option("--train", help="Leave the files' loss masks as they are, else 0.")
]
Policy = Annotated[str, typer.Option(help="Policy of rows that name none.")]
Version = Annotated[
    int | None, typer.Option(min=0, help="Policy version of tokens for which a file has none.")
]
Unscored = Annotated[
    bool,
    typer.Option(
        "--unscored",
        help="With --train, take rows without log-probs or versions also; only pools of "
        "trainer.replay train them.",
    ),
]


def import_files(
    files: ImportedFiles,
    to: ImportPrefix,
    out: Out = None,
    train: Train = False,
    policy: Policy = "foreign",
    version: Version = None,
    unscored: Unscored = False,
) -> None:
    """Bring in sequences of tokens as trajectories of origin foreign: a row, a trajectory.

    Columns are those of any form of `export`. All rows are checked first. A row that was written
    by an earlier call is not written again.
    """
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.importing import importing
    from seamlessflow.recorded.importing.foreign_trajectory import ForeignRules
    from seamlessflow.recorded.importing.importing import ReadRows, jsonl_rows

    readers: dict[bool, ReadRows] = {False: jsonl_rows}
    if any(path.suffix == ".parquet" for path in files):
        from seamlessflow.checks.packages import require

        require("parquet", "pyarrow")
        from seamlessflow.recorded.export.parquet_file import parquet_rows

        readers[True] = parquet_rows
    named = [(path, readers[path.suffix == ".parquet"]) for path in files]
    with kafka_to_inspect(out) as kafka:
        job = importing.ImportJob(named, to, ForeignRules(train, policy, version, unscored))
        outcome = importing.import_files(kafka, job)
    what = "trained" if train else "not trained"
    typer.echo(
        f"wrote {outcome.written:,} trajectories with {outcome.tokens:,} tokens to "
        f"{to}trajectories, {outcome.sampled:,} of them sampled elsewhere and {what}"
    )
    if not outcome.written + outcome.already_written:
        typer.echo("no rows: the files are empty")
    if outcome.already_written:
        typer.echo(f"{outcome.already_written:,} rows were there")
