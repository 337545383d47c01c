"""A drawing of a long session shows its head and its newest lines."""

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from seamlessflow.recorded.show.growing import NewestLines


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (4, ["0", "1", "2", "3"]),
        (9, ["0", "… 4 lines above", "5", "6", "7", "8"]),
    ],
)
def test_lines_that_do_not_fit_are_left_out_behind_the_head(lines: int, shown: list[str]) -> None:
    console = Console(width=40, height=8, file=StringIO())
    with console.capture() as captured:
        console.print(NewestLines(Text("\n".join(map(str, range(lines))))))
    assert [line.rstrip() for line in captured.get().splitlines()] == shown
