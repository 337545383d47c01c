"""The command `replay merge` behind its options: progress, outcome, exit status."""

import sys
from dataclasses import dataclass
from pathlib import Path

import orjson
import typer
from rich.columns import Columns
from rich.console import Console

from seamlessflow.console import clean_console, reading_bar
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.recorded.merge.merge import MergeJob
from seamlessflow.recorded.merge.merging import check, replay_merge, two_sessions
from seamlessflow.recorded.merge.rules import MergeRules
from seamlessflow.recorded.merge.shards import MergeStopped
from seamlessflow.recorded.merge.view import merge_json, merge_view
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.show.session_view import session_view


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Options of the command."""

    out: Path | None
    selection: SessionSelection
    rules: MergeRules
    prefix: str | None
    directory: Path | None
    verify: bool
    diff: bool
    processes: int | None
    as_json: bool

    @property
    def session(self) -> str | None:
        """The only session that is named, or None."""
        return next(iter(self.selection.sessions)) if len(self.selection.sessions) == 1 else None


def run_merge(options: MergeOptions) -> None:
    """Merge, and print the outcome.

    Raises `typer.Exit` if a recorded trajectory is not what its events give. Also raises it if a
    session, group or task that was named is not there.
    """
    console = clean_console()
    try:
        with stoppable() as stop, kafka_to_inspect(options.out) as kafka:
            job = MergeJob(
                kafka,
                {},
                options.selection,
                options.rules,
                digests=options.verify,
                differences=options.diff,
                prefix=options.prefix,
                directory=options.directory,
            )
            check(job)
            with reading_bar() as show:
                outcome = replay_merge(job, options.processes, show, lambda: stop.asked)
            if options.as_json:
                print(orjson.dumps(merge_json(outcome), option=orjson.OPT_INDENT_2).decode())
            else:
                console.print(merge_view(outcome), soft_wrap=True)
            if options.diff and options.session and not options.as_json:
                _show_trees(console, job, options.session)
    except (Interrupted, MergeStopped):
        console.print("stopped as asked; the same command goes on where it ended")
        sys.exit(Interrupted.status)
    if outcome.missing or not outcome.verified:
        raise typer.Exit(ExitStatus.LASTING)


def _show_trees(console: Console, job: MergeJob, session_id: str) -> None:
    sessions = two_sessions(job.kafka, session_id, job.rules)
    if sessions is not None:
        trees = [session_view(session, None) for session in sessions]
        console.print(Columns(trees, equal=True, expand=True, width=console.width // 2 - 1))
