"""Console for tables."""

import os

from rich.console import Console

from seamlessflow.console import clean_console

WIDTH_OF_NO_TERMINAL = 200


def wide_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for any table without a terminal."""
    console = clean_console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return clean_console(width=WIDTH_OF_NO_TERMINAL)
