"""The command `seamlessflow timeline`: a run's time as a page, as pictures, and for Perfetto."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from seamlessflow.commands.options import Out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from seamlessflow.infra.kafka.unreadable import Skipped
    from seamlessflow.schemas.records import Record

_TO = Path("timeline.html")
_PAGE = ".html"
_TRACE = ".json"
_PICTURES = (".svg", ".png")
_SUFFIXES = (_PAGE, *_PICTURES, _TRACE)
_REDRAW_S = 5.0
_SHARE = 10
"""Least pause between two drawings of a live run, as a multiple of a drawing's time."""


def timeline(
    out: Out = None,
    to: Annotated[
        list[Path] | None,
        typer.Option(
            help="File .html, .svg, .png or .json (Perfetto); by default timeline.html. Can be "
            "repeated."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Draw it again while the run goes on, until its end or Ctrl-C."
        ),
    ] = False,
) -> None:
    """Draw who did what when, and who waited for what, from the topic control only.

    The page is one file that loads nothing from outside; see docs/scheduling/device-time.md.
    """
    paths = to or [_TO]
    _check(paths)
    from seamlessflow.infra.kafka.unreadable import Skipped

    skipped = Skipped()
    (_follow if follow else _draw)(out, paths, skipped)
    for notice in skipped.notices:
        typer.echo(f"! {notice}", err=True)


def write_timeline(
    records: "Sequence[Record]", paths: "Iterable[Path]", title: str, refresh_s: float = 0
) -> None:
    """Write the timeline of `control` records to each path, in the format that its suffix names.

    A page with `refresh_s` loads itself again after that many seconds. A reader never sees half a
    file. Raises `OSError`.
    """
    from seamlessflow.lab.timeline.facts import facts
    from seamlessflow.lab.timeline.page import page
    from seamlessflow.lab.timeline.trace_events import trace_events
    from seamlessflow.scheduler.state.timeline import timeline as folded

    history = folded(records)
    for path in paths:
        draft = path.with_name(f".{path.stem}.part{path.suffix}")
        if path.suffix == _PAGE:
            draft.write_text(page(history, facts(records), title, refresh_s), encoding="utf-8")
        elif path.suffix == _TRACE:
            draft.write_bytes(orjson.dumps(trace_events(history, facts(records), title)))
        else:
            from seamlessflow.lab.timeline.chart import plot

            plot(history, draft)
        draft.replace(path)


def _check(paths: list[Path]) -> None:
    from seamlessflow.checks.packages import require

    for path in paths:
        if path.suffix not in _SUFFIXES:
            raise typer.BadParameter(f"--to {path}: must end in {', '.join(_SUFFIXES)}")
        if not path.parent.is_dir():
            raise typer.BadParameter(f"--to {path}: there is no folder {path.parent}")
    if any(path.suffix in _PICTURES for path in paths):
        require("charts", "matplotlib")


def _draw(out: Path | None, paths: list[Path], skipped: "Skipped") -> None:
    from seamlessflow.infra.kafka.whole_topic import read_topic
    from seamlessflow.processes.cluster import kafka_to_audit
    from seamlessflow.schemas.topics import CONTROL

    with kafka_to_audit(out) as kafka:
        records = [item.record for item in read_topic(kafka, CONTROL, skipped)]
    write_timeline(records, paths, _title(out, kafka.topic_prefix))
    for path in paths:
        typer.echo(path)


def _follow(out: Path | None, paths: list[Path], skipped: "Skipped") -> None:
    from seamlessflow.infra.kafka.start.cluster import find_cluster
    from seamlessflow.processes.cluster import WITHOUT_FOLLOWING, has_address, kafka_of_running
    from seamlessflow.processes.stopping import Interrupted, stoppable
    from seamlessflow.recorded.show.tail import Tail
    from seamlessflow.schemas.topics import CONTROL

    kafka = kafka_of_running(out, WITHOUT_FOLLOWING)
    records: list[Record] = []  # all of them: megabytes, never tokens
    title = _title(out, kafka.topic_prefix)
    due_s = 0.0
    drawn = 0
    try:
        with stoppable() as stop:
            find_cluster(kafka, [CONTROL], lambda: stop.asked)

            def ended() -> bool:
                return stop.asked or (out is not None and not has_address(out))

            tail = Tail(kafka, [(CONTROL.name, 0)], lambda _: True, skipped, ended)
            for batch in tail.batches():
                records += [item.record for item in batch]
                if len(records) > drawn and time.monotonic() >= due_s:
                    began_s = time.monotonic()
                    drawn = len(records)
                    write_timeline(records, paths, title, _REDRAW_S)
                    took_s = time.monotonic() - began_s
                    due_s = time.monotonic() + max(_REDRAW_S, _SHARE * took_s)
    except Interrupted:
        pass  # asked to end: the last drawing follows
    write_timeline(records, paths, title)


def _title(out: Path | None, prefix: str) -> str:
    """Return the title with the run's name: its directory, or its topic prefix."""
    from seamlessflow.rehearsal.directory import scale_of

    scale = scale_of(out)
    times = "" if scale == 1 else f", a rehearsal whose devices take {scale:g} times their time"
    return f"Timeline of {out or prefix.strip('.') or 'the run'}{times}"
