import pytest
from rich.console import Console

from seamlessflow.inspection.wide_console import WIDTH_OF_NO_TERMINAL, wide_console
from seamlessflow.recorded.show.list_view import list_view


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
