"""Console for tables."""

import os

from rich.console import Console

WIDTH_OF_NO_TERMINAL = 200


def wide_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for any table without a terminal."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=WIDTH_OF_NO_TERMINAL)
