"""The picture of a waterfall: bars in their places, on a console of any width."""

from io import StringIO

import pytest
from rich.console import Console

from seamlessflow.recorded.trace.view import waterfall_view
from seamlessflow.recorded.trace.waterfall import waterfall
from seamlessflow.schemas.topics import CONTROL, Headers
from tests.builders.traces import session_history as history


def picture(width: int, headers: Headers = (), *, offsets: bool = False, until: int = 99) -> str:
    items = history.received(history.trained()[:until], headers)
    control = [item for item in items if item.topic == CONTROL.name]
    trace = waterfall(history.ID, [item for item in items if item not in control], control)
    said = StringIO()
    Console(file=said, width=width).print(waterfall_view(trace, width, offsets))
    return said.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 240])
def test_no_line_is_longer_than_the_console_and_no_name_is_cut(width: int) -> None:
    said = picture(width)
    assert max(map(len, said.splitlines())) <= width
    for name in ("group g", "dispatch #1 on w", "weights published", "finalized"):
        assert name in said


def test_bars_stand_one_below_the_other_in_the_order_of_time() -> None:
    said = picture(120).splitlines()
    turn, matched, answered = (
        next(line for line in said if name in line) for name in ("turn 1", "matched", "answered")
    )
    assert turn.index("█") == matched.index("█")
    assert matched.rindex("█") < answered.index("█")
    assert turn.rindex("█") == answered.rindex("█")
    assert "│" in next(line for line in said if "finalized" in line)


def test_what_is_under_way_goes_on_to_the_edge() -> None:
    said = picture(120, until=8).splitlines()
    assert "▶" in next(line for line in said if "turn 1" in line)
    assert "..." in next(line for line in said if "turn 1" in line)


def test_trace_ids_are_shown_or_said_to_lack() -> None:
    assert f"trace {history.TRACE}" in picture(120, history.TRACED)
    assert "no trace ids" in picture(120)


def test_the_places_of_the_records_are_listed_if_asked_for() -> None:
    assert "SessionOpened" not in picture(120)
    said = picture(120, offsets=True)
    (line,) = (line for line in said.splitlines() if "SessionOpened" in line)
    assert line.split() == ["+0.030", "SessionOpened", "sessions", "0:3"]


def test_records_of_one_moment_are_listed_in_the_order_of_their_partition() -> None:
    items = [item._replace(timestamp_ms=5) for item in history.received(history.trained())]
    trace = waterfall(history.ID, [item for item in items if item.topic != CONTROL.name], [])
    said = StringIO()
    Console(file=said, width=120).print(waterfall_view(trace, 120, offsets=True))
    assert said.getvalue().index("SessionClosed") < said.getvalue().index("SessionFinalized")
