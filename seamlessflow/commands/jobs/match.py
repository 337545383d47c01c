"""Work that the command `replay match` starts."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.table import Table

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.infra.errors import ExitStatus, SettingsRejected
from seamlessflow.infra.rendering.library import families
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.recorded.merge.match_trial import NOT_RECORDED
from seamlessflow.recorded.merge.trial_run import TrialOutcome, run_trial
from seamlessflow.recorded.select.options import renderer_change
from seamlessflow.recorded.select.selection import SessionSelection, unmatched_lines
from seamlessflow.terminal import clean_console, reading_bar

_COLUMNS = ("recorded", "would_match", "turns", "shared_tokens", "would_share_tokens")


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """The command's options."""

    out: Path | None
    selection: SessionSelection
    strictness: Strictness | None
    renderer: str | None
    as_json: bool


def run_match(options: MatchOptions) -> None:
    """Count by which rules turns would have been matched, and print the counts.

    Raises `SettingsRejected` for wrong options. Raises `typer.Exit` if a named session, group or
    task does not exist.
    """
    if (options.strictness is None) == (options.renderer is None):
        raise SettingsRejected("--strictness, --renderer", "give one of the two: each is a trial")
    change = (
        None
        if options.renderer is None
        else renderer_change(options.renderer, [CHAT_TEMPLATE, *families()])
    )
    console = clean_console()
    try:
        with (
            stoppable() as stop,
            kafka_to_inspect(options.out) as kafka,
            reading_bar() as show,
        ):
            outcome = run_trial(
                kafka, options.selection, options.strictness, change, show, lambda: stop.asked
            )
    except Interrupted:
        sys.exit(Interrupted.status)
    if options.as_json:
        print(orjson.dumps(match_json(outcome), option=orjson.OPT_INDENT_2).decode())
    else:
        console.print(_table(outcome))
        for line in _sentences(outcome, options.selection):
            console.print(line, soft_wrap=True, markup=False)
    if outcome.missing:
        raise typer.Exit(ExitStatus.LASTING)


def match_json(outcome: TrialOutcome) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in outcome.counts.rows()]
    counts = {"events": outcome.events, "sessions": outcome.sessions}
    return {**counts, "rules": rows, "not_found": outcome.missing}


def _table(outcome: TrialOutcome) -> Table:
    table = Table(box=None)
    for number, name in enumerate(_COLUMNS):
        table.add_column(name.replace("_", " "), justify="left" if number < 2 else "right")
    for recorded, would, *counts in outcome.counts.rows():
        table.add_row(recorded, would, *(f"{count:,}" for count in counts))
    return table


def _sentences(outcome: TrialOutcome, selection: SessionSelection) -> Iterator[str]:
    turns = outcome.counts.turns
    changed = sum(
        count for (was, would), count in turns.items() if would not in (was, NOT_RECORDED)
    )
    yield (
        f"{changed:,} of {turns.total():,} turns of {outcome.sessions:,} sessions "
        "would have been matched by another rule"
    )
    yield from unmatched_lines(selection, outcome.missing, outcome.sessions)
    for notice in outcome.skipped.notices:
        yield f"! {notice}"
