"""Work that the command `export` starts: progress and outcome."""

import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.recorded.export.exporting import (
    ExportJob,
    ExportOutcome,
    export,
)
from seamlessflow.recorded.select.reading import ReadingStopped
from seamlessflow.recorded.select.selection import unmatched_lines
from seamlessflow.terminal import clean_console, reading_bar


def run_export(out: Path | None, job: ExportJob) -> None:
    """Export from the Kafka of the run in `out`, or the environment's, and print the outcome.

    Raises `typer.Exit` if nothing was written and a selected name does not exist.
    """
    console = clean_console()
    try:
        with (
            stoppable() as stop,
            kafka_to_inspect(out) as kafka,
            reading_bar() as show,
        ):
            outcome = export(kafka, job, show, lambda: stop.asked)
    except (Interrupted, ReadingStopped):
        console.print("stopped as asked; the same command goes on where it ended")
        sys.exit(Interrupted.status)
    for line in _sentences(outcome, job):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if not outcome.rows and job.selection.missing(outcome.matched):
        raise typer.Exit(ExitStatus.LASTING)


def _sentences(outcome: ExportOutcome, job: ExportJob) -> Iterator[str]:
    counts = outcome.counts
    tables = ", ".join(f"{count:,} {name}" for name, count in outcome.rows.items()) or "nothing"
    yield f"wrote {tables} to {job.directory}"
    yield (
        f"read {counts['sessions']:,} sessions with {counts['tokens']:,} tokens "
        f"from {counts['events']:,} events"
    )
    if not outcome.partitions_kept:  # else names may be those of sessions that were not read now
        missing = job.selection.missing(outcome.matched)
        yield from unmatched_lines(job.selection, missing, counts["sessions"])
    if outcome.partitions_kept:
        yield f"{outcome.partitions_kept} partitions were written by an earlier call"
    if counts["sessions_open"]:
        yield f"left out: {counts['sessions_open']:,} sessions that had not ended"
    if counts["beginnings_gone"]:
        yield f"left out: {counts['beginnings_gone']:,} sessions whose beginning retention removed"
    if counts["malformed"]:
        yield f"left out: {counts['malformed']:,} sessions whose trees contradict themselves"
    for notice in outcome.skipped.notices:
        yield f"! {notice}"
