"""Work that the command `replay merge` starts: progress, outcome, exit status."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.text import Text

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.processes.stopping import Interrupted, stoppable
from seamlessflow.recorded.judging.late_rewards import late_rewards
from seamlessflow.recorded.merge.difference import Difference
from seamlessflow.recorded.merge.merge_run import MergeOutcome, check, replay_merge, two_sessions
from seamlessflow.recorded.merge.partitions import MergeJob
from seamlessflow.recorded.merge.rules import MergeRules
from seamlessflow.recorded.merge.shards import MergeStopped
from seamlessflow.recorded.merge.verification import MOST_NAMED, Comparison
from seamlessflow.recorded.select.selection import SessionSelection, unmatched_lines
from seamlessflow.recorded.show.session_view import session_view
from seamlessflow.terminal import clean_console, reading_bar
from seamlessflow.trainer.metrics.unlearned import listed


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The command's options."""

    out: Path | None
    selection: SessionSelection
    rules: MergeRules
    prefix: str | None
    directory: Path | None
    verify: bool
    diff: bool
    processes: int | None
    as_json: bool
    late_rewards: bool = False
    """True: sessions get the rewards that judges gave too late."""

    @property
    def session(self) -> str | None:
        """The only session that is named, or None."""
        return next(iter(self.selection.sessions)) if len(self.selection.sessions) == 1 else None


def run_merge(options: MergeOptions) -> None:
    """Merge, and print the outcome.

    Raises `typer.Exit` if a recorded trajectory is not what its events give, or if a named session,
    group or task does not exist.
    """
    console = clean_console()
    try:
        with stoppable() as stop, kafka_to_inspect(options.out) as kafka:
            late = Skipped()
            job = MergeJob(
                kafka,
                {},
                options.selection,
                _rules(options, kafka, late, lambda: stop.asked),
                digests=options.verify,
                differences=options.diff,
                prefix=options.prefix,
                directory=options.directory,
            )
            check(job)
            with reading_bar() as show:
                outcome = replay_merge(job, options.processes, show, lambda: stop.asked)
            outcome.skipped.garbage.update(late.garbage)
            outcome.skipped.missed.update(late.missed)
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


def _rules(
    options: MergeOptions, kafka: KafkaSettings, skipped: Skipped, stopping: Stopping
) -> MergeRules:
    """Return the options' rules, with late rewards if these are asked for."""
    if not options.late_rewards:
        return options.rules
    return replace(options.rules, late=late_rewards(kafka, skipped, stopping))


def _show_trees(console: Console, job: MergeJob, session_id: str) -> None:
    sessions = two_sessions(job.kafka, session_id, job.rules)
    if sessions is not None:
        trees = [session_view(session, None) for session in sessions]
        console.print(Columns(trees, equal=True, expand=True, width=console.width // 2 - 1))


def merge_view(outcome: MergeOutcome) -> RenderableType:
    """Return a replay's sentences and tables."""
    parts: list[RenderableType] = [Text(line) for line in _sentences(outcome)]
    if outcome.merged.differences:
        differences = outcome.merged.differences
        parts += [Text(line) for line in (*_differences(differences), *_examples(differences))]
    if outcome.comparison is not None:
        style = "green" if outcome.verified else "bold red"
        parts += [Text(line, style=style) for line in _compared(outcome.comparison)]
    return Group(*parts)


def merge_json(outcome: MergeOutcome) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    merged = outcome.merged
    comparison = outcome.comparison
    content: dict[str, Any] = {
        "events": merged.events,
        "sessions": merged.sessions,
        "tokens": merged.tokens,
        "sessions_open": merged.sessions_open,
        "beginnings_gone": merged.beginnings_gone,
        "unreadable": dict(merged.skipped.garbage),
        "late_rewards": merged.late,
        "masked_tokens": dict(merged.masked),
        "not_found": outcome.missing,
        "done_before": outcome.done_before,
        "differences": {
            label: {name: getattr(difference, name) for name in difference.__slots__}
            for label, difference in merged.differences.items()
        },
    }
    if comparison is not None:
        content["verification"] = {
            "equal": comparison.equal,
            "copies": comparison.copies,
            "different": {
                session_id: [*place] for session_id, place in comparison.different.items()
            },
            "missing": comparison.missing,
            "not_checkable": comparison.not_checkable + comparison.removed,
        }
    return content


def _sentences(outcome: MergeOutcome) -> Iterator[str]:
    merged = outcome.merged
    if outcome.done_before:
        yield "done already: an earlier replay merged all sessions that have ended"
    else:
        yield (
            f"merged {merged.sessions:,} sessions with {merged.tokens:,} tokens "
            f"from {merged.events:,} events"
        )
    if masked := {name: count for name, count in merged.masked.most_common() if count}:
        yield f"not trained: {listed(masked)} tokens"
    # Judgements in partitions that an earlier replay wrote are not counted: it used them.
    if outcome.judgements > merged.judged and not merged.went_on:
        missed = outcome.judgements - merged.judged
        yield f"! {missed:,} sessions of --rewards were not among them"
    if merged.late:
        yield f"{merged.late:,} sessions got rewards of judges that came late"
    if merged.partitions_kept:
        yield f"{merged.partitions_kept} partitions were written by an earlier replay"
    if not merged.went_on:
        yield from unmatched_lines(outcome.selection, outcome.missing, merged.sessions)
    if merged.sessions_open:
        yield f"left out: {merged.sessions_open:,} sessions that had not ended"
    if merged.beginnings_gone:
        yield f"left out: {merged.beginnings_gone:,} sessions whose beginning retention removed"
    for notice in (*merged.skipped.notices, *outcome.skipped.notices):
        yield f"! {notice}"


def _differences(differences: Mapping[str, Difference]) -> Iterator[str]:
    yield "against the recorded rules:"
    for label, difference in differences.items():
        if not difference.sessions:
            yield f"  {label}: no difference"
            continue
        yield (
            f"  {label}: {difference.sessions:,} sessions differ, "
            f"{difference.trained_more:+,} tokens trained, {-difference.trained_less:+,} masked"
        )
        yield from (f"    {line}" for line in _changes(difference))


def _changes(difference: Difference) -> Iterator[str]:
    if difference.turns_moved:
        yield (
            f"{difference.turns_moved:,} turns continue another place, "
            f"{difference.prompt_tokens:+,} stored prompt tokens"
        )
    if masks := [f"{count:+,} {reason}" for reason, count in difference.masked.items() if count]:
        yield f"masked by reason: {', '.join(masks)}"
    if difference.rewards:
        yield f"{difference.rewards:,} rewards are new, gone or have another value"
    for change, count in difference.statuses.items():
        yield f"{count:,} sessions from {change}"


def _examples(differences: Mapping[str, Difference]) -> Iterator[str]:
    *_, last = differences.values()
    if last.examples:
        yield f"sessions that differ: {', '.join(last.examples)}"


def _compared(comparison: Comparison) -> Iterator[str]:
    copies = f", and {comparison.copies:,} copies of them" if comparison.copies else ""
    yield f"{comparison.equal:,} recorded trajectories are byte for byte the replayed ones{copies}"
    for session_id, place in list(comparison.different.items())[:MOST_NAMED]:
        yield f"different: {session_id}, recorded at trajectories[{place.partition}]@{place.offset}"
    if len(comparison.different) > MOST_NAMED:
        yield f"different: {len(comparison.different) - MOST_NAMED:,} more"
    if missing := comparison.missing:
        named = ", ".join(missing[:MOST_NAMED])
        yield f"without a recorded trajectory: {len(missing):,} sessions ({named})"
    if comparison.later:
        yield f"left out: {comparison.later:,} recorded sessions that ended meanwhile"
    if comparison.not_checkable:
        count = comparison.not_checkable
        yield f"not checkable, since retention removed their first events: {count:,} sessions"
    if removed := comparison.removed:
        what = "may have removed their recorded trajectories"
        yield f"not checkable, since retention {what}: {removed:,} sessions"
