"""Consoles for commands: `rich` draws tables, trees and bars, and text moves no cursor.

Every command takes its console here. Texts from agents and models have control codes, and brackets
that are no markup.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.text import Text

from seamlessflow.infra.printable import printable
from seamlessflow.outputs import lasting, unguarded

WIDTH_OF_NO_TERMINAL = 200


class _CleanConsole(Console):
    """A console that sends only its own control codes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text's printable form, before its width is measured."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, with a visible sign for each control code in a text."""
        for segment in super().render(_printable(renderable), options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def clean_console(stderr: bool = False, **options: Any) -> Console:
    """Return a console with `rich`'s options; a text with brackets or colons is shown as it is."""
    file = unguarded(sys.stderr if stderr else sys.stdout)
    return _CleanConsole(**{"file": file, "markup": False, "emoji": False, **options})


def long_job_console() -> Console:
    """Return a console whose command goes on when nothing can be printed any more."""
    return clean_console(file=lasting(unguarded(sys.stdout)))


@contextmanager
def reading_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a bar for read events on a terminal, else nothing; yield a function that adds counts.

    The function takes how many events were just read, and how many there are in all.
    """
    read = 0
    with job_bar("reading events") as show:

        def add(count: int, total: int) -> None:
            nonlocal read
            read += count
            show("reading events", read, total)

        yield add


@contextmanager
def job_bar(
    doing: str, *columns: ProgressColumn
) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a job's bar on a terminal, else nothing; yield the function that moves it.

    The function takes the words for the present work, the count so far, and the total or None.
    `columns`: those of `rich` by default.
    """
    console = clean_console(stderr=True)
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(doing, total=None)

        def show(doing: str, done: int, total: int | None) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        yield show


def wide_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for any table without a terminal."""
    console = clean_console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return clean_console(width=WIDTH_OF_NO_TERMINAL)


def _printable(renderable: RenderableType) -> RenderableType:
    """Return a text as printable signs, to be wrapped with them; anything else as it is."""
    if isinstance(renderable, Text) and (shown := printable(renderable.plain)) != renderable.plain:
        renderable = renderable.copy()
        renderable.plain = shown
    return renderable
