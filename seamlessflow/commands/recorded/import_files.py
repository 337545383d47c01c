"""The command `seamlessflow import`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from seamlessflow.recorded.importing.importing import ReadRows
    from seamlessflow.runs.imported_conversations import ConversationReader

ImportedFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Parquet, .jsonl or .json: tokens, or conversations.",
        exists=True,
        dir_okay=False,
    ),
]
ImportPrefix = Annotated[
    str,
    typer.Option(help="Prefix for the topic to write, such as foreign. for foreign.trajectories."),
]
Train = Annotated[
    bool, typer.Option("--train", help="Keep the files' loss masks; without it, all masks are 0.")
]
Policy = Annotated[str, typer.Option(help="Policy for rows that name none.")]
Version = Annotated[
    int | None, typer.Option(min=0, help="Policy version for tokens that have none in the file.")
]
Unscored = Annotated[
    bool,
    typer.Option(
        "--unscored",
        help="With --train, also take rows without log-probs or versions; only pools in "
        "trainer.replay train them.",
    ),
]

Model = Annotated[
    Path | None,
    typer.Option(
        help="Directory with the model whose template renders conversations.",
        exists=True,
        file_okay=False,
    ),
]

Skip = Annotated[
    bool,
    typer.Option("--skip", help="Leave out conversations that cannot be rendered, and name them."),
]


def import_files(
    files: ImportedFiles,
    to: ImportPrefix,
    out: Out = None,
    train: Train = False,
    policy: Policy = "foreign",
    version: Version = None,
    unscored: Unscored = False,
    model: Model = None,
    skip: Skip = False,
) -> None:
    """Import tokens or conversations as trajectories whose origin is foreign.

    Token columns are those that any form of `export` writes. Conversations are OpenAI's chat lines,
    Claude Code, Codex and ATIF files, and OpenTelemetry, Langfuse and LiteLLM logs. All rows are
    checked first. A row that an earlier call wrote is not written again.
    """
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.importing import importing
    from seamlessflow.recorded.importing.foreign_trajectory import ForeignRules
    from seamlessflow.runs.imported_conversations import ConversationReader

    conversations = ConversationReader(model, skip)
    named = [(path, _reader(path, conversations)) for path in files]
    with kafka_to_inspect(out) as kafka:
        job = importing.ImportJob(named, to, ForeignRules(train, policy, version, unscored))
        outcome = importing.import_files(kafka, job)
    what = "trained" if train else "not trained"
    typer.echo(
        f"wrote {outcome.written:,} trajectories with {outcome.tokens:,} tokens to "
        f"{to}trajectories, {outcome.sampled:,} of them sampled elsewhere and {what}"
    )
    for (path, number), reason in conversations.skipped.items():
        typer.echo(f"left out: {path}, conversation {number}: {reason}")
    if not outcome.written + outcome.already_written:
        typer.echo("no rows: the files are empty")
    if outcome.already_written:
        typer.echo(f"{outcome.already_written:,} rows were there")


def _reader(path: Path, conversations: "ConversationReader") -> "ReadRows":
    """Return the reader for a file's rows, by the file's suffix and content."""
    from seamlessflow.recorded.importing.conversations.reading import reader_of
    from seamlessflow.recorded.importing.importing import jsonl_rows

    if path.suffix == ".parquet":
        from seamlessflow.checks.packages import require

        require("parquet", "pyarrow")
        from seamlessflow.recorded.export.parquet_file import parquet_rows

        return parquet_rows
    reader = reader_of(path)
    return jsonl_rows if reader is None else conversations.rows(reader)
