"""The command `export` behind its options: progress and outcome."""

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from seamlessflow.history.export.exporting import (
    ExportJob,
    ExportOutcome,
    ExportStopped,
    export,
)
from seamlessflow.history.merge_command import reading_bar
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable

_INTERRUPTED = 130


def run_export(out: Path | None, job: ExportJob) -> None:
    """Export from the Kafka of the run in `out`, or of the environment, and print the outcome."""
    console = Console()
    try:
        with (
            stoppable() as stop,
            kafka_to_inspect(out) as kafka,
            reading_bar(Console(stderr=True)) as show,
        ):
            outcome = export(kafka, job, show, lambda: stop.asked)
    except (Interrupted, ExportStopped):
        console.print("stopped as asked; the same command goes on where it ended")
        sys.exit(_INTERRUPTED)
    for line in _sentences(outcome, job):
        console.print(line, soft_wrap=True, highlight=False)


def _sentences(outcome: ExportOutcome, job: ExportJob) -> Iterator[str]:
    counts = outcome.counts
    rows = {name: count for name, count in counts.items() if name.startswith("rows_")}
    tables = ", ".join(f"{count:,} {name[5:]}" for name, count in rows.items()) or "nothing"
    yield f"wrote {tables} to {job.directory}"
    yield (
        f"read {counts['sessions']:,} sessions with {counts['tokens']:,} tokens "
        f"from {counts['events']:,} events"
    )
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
