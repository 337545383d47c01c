"""The commands `seamlessflow dlq list`, `show` and `retry`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from seamlessflow.commands.options import Out
from seamlessflow.schemas.topics import LETTERED

if TYPE_CHECKING:
    from seamlessflow.recorded.dead_letters.retrying import RetryOutcome

app = typer.Typer(help="Dead letters: records that could not be read or processed.")

T = TypeVar("T")


@app.command(name="list")
def list_(
    topic: Annotated[str | None, typer.Option(help="Only those from this topic.")] = None,
    out: Out = None,
) -> None:
    """List dead letters by source topic and error: how many, when, from where, how many retried."""
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.dead_letters.letters import read_letters
    from seamlessflow.recorded.dead_letters.listing import counted, list_table
    from seamlessflow.terminal import wide_console

    topics = _topics(topic)
    with kafka_to_inspect(out) as kafka, _progress("reading dead letters") as seen:
        counts = counted(_counting(read_letters(kafka, topics), seen))
    if counts:
        wide_console().print(list_table(counts))
    else:
        typer.echo("no dead letters")


@app.command()
def show(
    topic: Annotated[str, typer.Argument(help="Source topic, such as tasks.")],
    partition: Annotated[int, typer.Argument(min=0, help="The source topic's partition.")],
    offset: Annotated[
        int, typer.Argument(min=0, help="Offset on the source topic, as `list` shows it.")
    ],
    out: Out = None,
) -> None:
    """Show a dead letter: its headers, and the record if it can be decoded now, else its bytes."""
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.dead_letters.letters import (
        DeadLetter,
        RetryMark,
        read_letters,
    )
    from seamlessflow.recorded.dead_letters.listing import letter_view
    from seamlessflow.terminal import wide_console

    letters = list[DeadLetter]()
    marks = list[RetryMark]()
    with kafka_to_inspect(out) as kafka, _progress("reading dead letters") as seen:
        for record in _counting(read_letters(kafka, _topics(topic), partition), seen):
            if isinstance(record, RetryMark):
                marks.append(record)
            elif record.source == offset:
                letters.append(record)
    if not letters:
        typer.echo(f"no dead letter of {topic}[{partition}]@{offset}", err=True)
        raise typer.Exit(1)
    for letter in letters:
        retries = [mark for mark in marks if mark.place == letter.place]
        wide_console().print(letter_view(letter, retries))


@app.command()
def retry(
    topic: Annotated[
        str | None, typer.Argument(help="Source topic; only this: all its dead letters.")
    ] = None,
    partition: Annotated[
        int | None, typer.Argument(min=0, help="The source topic's partition.")
    ] = None,
    offset: Annotated[
        int | None, typer.Argument(min=0, help="Its offset, as `list` shows it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those from all topics.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing, only say what.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also send undecodable ones.")] = False,
    out: Out = None,
) -> None:
    """Send dead letters to the end of their source topic again, each once, if they decode now.

    Only tasks and unexpired commands are sent. Records on all other topics depend on their order,
    or mean something for one moment only. The refusal says what to do instead.
    """
    from seamlessflow.processes.cluster import kafka_to_inspect
    from seamlessflow.recorded.dead_letters import retrying

    if (topic is None) != everything:
        raise typer.BadParameter("give TOPIC [PARTITION OFFSET], or --all")
    if (partition is None) != (offset is None):
        raise typer.BadParameter("a PARTITION needs an OFFSET")
    chosen = retrying.Chosen(tuple(_topics(topic)), partition, offset)
    with kafka_to_inspect(out) as kafka, _progress("retrying") as seen:
        outcome = retrying.retry(kafka, chosen, dry_run=dry_run, force=force, seen=seen)
    _report(outcome, dry_run)
    if outcome.refused and not outcome.sent:
        raise typer.Exit(1)


def _report(outcome: "RetryOutcome", dry_run: bool) -> None:
    for name, partition, source, sent_to in outcome.sent:
        place = f"{name}[{partition}]@{source}"
        typer.echo(f"would send {place}" if dry_run else f"sent {place} as offset {sent_to}")
    if outcome.earlier:
        typer.echo(f"{outcome.earlier} retried before: left out")
    for (name, reason), count in sorted(outcome.refused.items()):
        typer.echo(f"refused {count} of {name}: {reason}")
    if not (outcome.sent or outcome.earlier or outcome.refused):
        typer.echo("no such dead letters")


def _topics(topic: str | None) -> list[str]:
    if topic is not None and topic not in LETTERED:
        raise typer.BadParameter(f"{topic}: the topics are {', '.join(LETTERED)}")
    return list(LETTERED) if topic is None else [topic]


def _counting(records: Iterator[T], seen: Callable[[int], None]) -> Iterator[T]:
    for count, record in enumerate(records, 1):
        seen(count)
        yield record


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int], None]]:
    """Show a growing count on a terminal's standard error."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from seamlessflow.terminal import job_bar

    text = TextColumn("{task.description}")
    with job_bar(doing, SpinnerColumn(), text, TimeElapsedColumn()) as show:
        yield lambda count: show(f"{doing}: {count:,}", count, None)
