"""Consoles and outputs of commands: text of a model moves no cursor, colours and names stay.

Tables are wide without a terminal.
"""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from seamlessflow.recorded.show.session_view import list_view
from seamlessflow.terminal import WIDTH_OF_NO_TERMINAL, clean_console, wide_console
from tests.source_files import modules, name

LIMIT_S = 120
EVIL = "\x1b]0;owned\x07\x1b]52;c;Z28=\x07\x1b[2J\x1b[8m\x9b2J[red]a:b:c[/] [/]"
SHOWN = "␛]0;owned␇␛]52;c;Z28=␇␛[2J␛[8m\ufffd2J[red]a:b:c[/] [/]"
WITHOUT_BELLS = SHOWN.replace("␇", "")
"""Signs that a `Text` of `rich` keeps: it drops some controls itself."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ECHO = f"""
import sys, typer
from rich.console import Console
from seamlessflow.terminal import clean_console
from seamlessflow.outputs import guard_outputs
guard_outputs()
typer.echo({EVIL!r})
print({EVIL!r}, file=sys.stderr)
print("step 1", end="\\r", file=sys.stderr)
clean_console().print({EVIL!r})
sys.exit({EVIL!r})
"""


def drawn(*what: object, **options: Any) -> str:
    console = clean_console(width=200, **options)
    with console.capture() as captured:
        console.print(*what)
    return captured.get()


def test_text_is_shown_as_it_is_wherever_it_stands() -> None:
    table = Table("name")
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    tree = Tree(EVIL)
    tree.add(Text(EVIL, "red"))
    text = drawn(EVIL, table, tree, Panel(Group(EVIL), title="title"))
    assert text.replace("␇", "").count(WITHOUT_BELLS) == 6
    assert not CONTROLS.search(text)


def test_a_terminal_gets_the_colours_of_the_console_alone() -> None:
    text = drawn(Text(EVIL, "red"), force_terminal=True, color_system="standard")
    assert text == f"\x1b[31m{WITHOUT_BELLS}\x1b[0m\n"


def test_what_is_echoed_and_printed_moves_no_cursor() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ECHO],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    echoed, printed = done.stdout.decode(), done.stderr.decode()
    assert echoed.count("␛]0;owned␇") == 2
    assert echoed.count(SHOWN) == 1  # in a pipe, echo leaves whole sequences of colours out
    assert printed.count("␛]0;owned␇␛]52;c;Z28=␇␛[2J") == 2
    assert "step 1\r" in printed
    assert not CONTROLS.search((echoed + printed).replace("\x1b[8m", "").replace("step 1\r", ""))


def test_commands_take_their_console_from_one_place() -> None:
    made = re.compile(r"(?<![\w.])Console\((?!Console\))")
    makers = [
        name(path)
        for path in modules("seamlessflow")
        if made.search(path.read_text(encoding="utf-8").replace("class _CleanConsole(Console)", ""))
    ]
    assert makers == []


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert wide_console().width == WIDTH_OF_NO_TERMINAL


def test_who_names_a_width_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert wide_console().width == 60


def test_the_heads_of_a_list_of_sessions_are_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console: Console = wide_console()
    with console.capture() as captured:
        console.print(list_view([]))
    assert captured.get().split()[:8] == [
        *("session", "task", "status", "reward", "turns", "tokens", "trainable", "versions")
    ]
