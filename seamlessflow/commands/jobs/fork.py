"""Work that the command `replay fork` starts: progress, outcome, exit status."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import typer

from seamlessflow.infra.disk import check_file
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.recorded.fork.forking import (
    ForkJob,
    ForkOutcome,
    fork_sessions,
)
from seamlessflow.recorded.select.reading import ReadingStopped
from seamlessflow.recorded.select.selection import unmatched_lines
from seamlessflow.schemas.forks import PLAYBACK
from seamlessflow.terminal import clean_console, reading_bar


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """The command's options."""

    out: Path | None
    job: ForkJob
    as_json: bool


def run_fork(options: ForkOptions) -> None:
    """Write the file and print the outcome.

    Raises `typer.Exit` if there is nothing to fork, or if a named session, group or task does not
    exist.
    """
    console = clean_console()
    job = options.job
    job.rule.check()
    check_file("--to", job.to)
    try:
        with (
            stoppable() as stop,
            kafka_to_inspect(options.out) as kafka,
            reading_bar() as show,
        ):
            outcome = fork_sessions(kafka, job, show, lambda: stop.asked)
    except (Interrupted, ReadingStopped):
        console.print("stopped as asked; no file was written")
        sys.exit(Interrupted.status)
    if options.as_json:
        print(orjson.dumps(fork_json(job, outcome), option=orjson.OPT_INDENT_2).decode())
    else:
        for line in fork_lines(job, outcome):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    if not outcome.forks or job.selection.missing(outcome.matched):
        raise typer.Exit(ExitStatus.LASTING)


def fork_json(job: ForkJob, outcome: ForkOutcome) -> dict[str, object]:
    """Return the outcome as JSON values."""
    return {
        "forks": outcome.forks,
        "sessions": outcome.sessions,
        "tokens": outcome.tokens,
        "answers_played_back": outcome.played,
        "left_out": dict(outcome.left_out),
        "not_found": job.selection.missing(outcome.matched),
        "unreadable": dict(outcome.skipped.garbage),
    }


def fork_lines(job: ForkJob, outcome: ForkOutcome) -> Iterator[str]:
    """Yield the outcome in sentences."""
    if outcome.forks:
        yield (
            f"wrote {outcome.forks:,} forks of {outcome.sessions:,} sessions to {job.to}, "
            f"each a group of {job.samples}; {outcome.tokens:,} tokens before them, never trained"
        )
    else:
        yield f"nothing to fork; {job.to} was not written"
    missing = job.selection.missing(outcome.matched)
    yield from unmatched_lines(job.selection, missing, outcome.chosen)
    for reason, count in outcome.left_out.most_common():
        yield f"left out: {count:,} {reason} ({outcome.examples[reason]})"
    for notice in outcome.skipped.notices:
        yield f"! {notice}"
    if outcome.forks and job.rule.mode == PLAYBACK:
        yield (
            f"! playback: agents run from their beginning and get {outcome.played:,} recorded "
            "answers in each round of samples; their tools really run again. The first request "
            "that is not the recorded one ends its session (fork_diverged)"
        )
    if outcome.forks:
        yield f"to train on them: pacing.forks={job.to}, pacing.fork_share=0.5"
