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

Model = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the model whose template renders conversations.",
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
    """Bring in tokens or conversations as trajectories of origin foreign.

    Columns of tokens are those of any form of `export`. Conversations are OpenAI's chat lines,
    files of Claude Code, Codex and ATIF, and logs of OpenTelemetry, Langfuse and LiteLLM. All rows
    are checked first. A row that was written by an earlier call is not written again.
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
    """Return the reader of a file's rows, by its suffix and by what stands in it."""
    from seamlessflow.recorded.importing.conversations.reading import reader_of
    from seamlessflow.recorded.importing.importing import jsonl_rows

    if path.suffix == ".parquet":
        from seamlessflow.checks.packages import require

        require("parquet", "pyarrow")
        from seamlessflow.recorded.export.parquet_file import parquet_rows

        return parquet_rows
    reader = reader_of(path)
    return jsonl_rows if reader is None else conversations.rows(reader)
