"""Where tables for people are printed."""

import os

from rich.console import Console

WIDTH_OF_NO_TERMINAL = 200


def wide_console() -> Console:
    """As wide as the terminal; what goes into a file or a pipe is not cut to a narrow one."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=WIDTH_OF_NO_TERMINAL)
