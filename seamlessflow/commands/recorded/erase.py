"""The command `seamlessflow erase`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from seamlessflow.infra.settings import KafkaSettings
    from seamlessflow.recorded.erase.erased_sessions import ErasedSessions
    from seamlessflow.recorded.erase.erasing import LogErased, LogErasure

NamedSessions = Annotated[
    list[str], typer.Argument(help="Session ids, or names; a name means all its sessions.")
]
CopyPrefix = Annotated[
    str, typer.Option(help="Prefix for the topics that get the copy, such as clean.")
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Prefix of the topics to erase from; by default the run's."),
]
# A missing directory would look like one from which the sessions were erased.
Trained = Annotated[
    Path | None,
    typer.Option(
        help="Directory with the trained tokens; by default OUT/trained.",
        exists=True,
        file_okay=False,
    ),
]
Exports = Annotated[
    list[Path] | None,
    typer.Option(
        help="Directory with exports (.jsonl, .jsonl.gz); can be repeated.",
        exists=True,
        file_okay=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, only count.")]
Drop = Annotated[
    bool, typer.Option("--drop-undecodable", help="Leave out what this release cannot read.")
]
DeleteOld = Annotated[
    bool, typer.Option("--delete-old", help="Delete the old topics when the copy is whole.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Delete without asking.")]


def erase(
    sessions: NamedSessions,
    to: CopyPrefix,
    out: Out = None,
    from_: From = None,
    trained: Trained = None,
    exports: Exports = None,
    dry_run: DryRun = False,
    drop_undecodable: Drop = False,
    delete_old: DeleteOld = False,
    yes: Yes = False,
) -> None:
    """Erase sessions: copy the log to another prefix without them, and take them out of files.

    All other records keep their partition, offset, key, headers and time. If a call is cut off, the
    same command goes on. The old topics stay until --delete-old.
    """
    from seamlessflow.infra.errors import SettingsRejected
    from seamlessflow.infra.kafka.topics.existing import partition_counts
    from seamlessflow.processes.cluster import kafka_to_inspect, remove_deleted
    from seamlessflow.recorded.erase.erased_files import erase_from_files
    from seamlessflow.recorded.erase.erased_sessions import ErasedSessions
    from seamlessflow.recorded.erase.report import advice, other_prefixes, report

    asked = ErasedSessions.from_names(sessions)
    folders = [*(exports or ()), *_trained(trained, out)]
    with kafka_to_inspect(out) as kafka:
        source = kafka if from_ is None else kafka.model_copy(update={"topic_prefix": from_})
        if delete_old and not (yes or dry_run or source.topic_prefix):
            reason = "the prefix of the old topics is empty, so it cannot be typed: add --yes"
            raise SettingsRejected("--delete-old", reason)
        erasure, done = _erase_log(source, to, asked, dry_run, drop_undecodable)
        files = erase_from_files(folders, asked, dry_run)
        others = other_prefixes(partition_counts(source), (source.topic_prefix, to))
        for line in (*report(done, files, dry_run), *advice(sessions, others)):
            typer.echo(line)
        if dry_run:
            return
        if delete_old:
            _delete(erasure, done, yes)
    if done.deleted and out is not None:
        remove_deleted(out)
    if not delete_old:
        typer.echo("the old topics still have all of it; delete them with the same command and")
        typer.echo("  --delete-old")


def _erase_log(
    kafka: "KafkaSettings", to: str, asked: "ErasedSessions", dry_run: bool, drop: bool
) -> "tuple[LogErasure, LogErased]":
    from seamlessflow.infra.blobs import blob_store, following
    from seamlessflow.infra.settings import load
    from seamlessflow.inspection.topics.inspector import TopicStateSettings
    from seamlessflow.recorded.erase.erasing import LogErasure, count_in_log, erase_from_log
    from seamlessflow.recorded.erase.sieve import Sieve
    from seamlessflow.schemas.codec import decode
    from seamlessflow.terminal import job_bar

    groups = tuple(load(TopicStateSettings).groups.values())
    sieve = Sieve(asked, drop, following(blob_store(kafka), decode))
    erasure = LogErasure(kafka, to, sieve, groups)
    with job_bar("copying") as show:
        work = count_in_log if dry_run else erase_from_log
        return erasure, work(erasure, show)


def _delete(erasure: "LogErasure", done: "LogErased", yes: bool) -> None:
    """Delete the old topics, once the user has typed their prefix."""
    from seamlessflow.recorded.erase.erasing import delete_old

    prefix = erasure.kafka.topic_prefix
    if not yes:
        typed = typer.prompt(f"type the prefix of the topics to delete ({prefix!r})", default="")
        if typed != prefix:
            typer.echo("nothing was deleted", err=True)
            raise typer.Exit(1)
    delete_old(erasure, done)
    typer.echo(f"deleted {len(done.deleted)} topics of the prefix {prefix!r}")
    if done.blobs_deleted:
        typer.echo(f"deleted {done.blobs_deleted} blobs of erased records")


def _trained(trained: Path | None, out: Path | None) -> list[Path]:
    chosen = trained if trained is not None else out and out / "trained"
    return [] if chosen is None else [chosen]
