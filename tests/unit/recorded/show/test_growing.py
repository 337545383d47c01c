"""A growing session: each event is one line, and a drawing shows the head and the newest lines."""

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.growing import NewestLines, event_line
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.records import sessions
from tests.builders.records.content import ids


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


def spell(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens)


def line(record: Record, accepted: bool = True, with_text: bool = True) -> str:
    item = Received(SESSIONS.name, 5, 12, 3_723_004, "s", (), record)
    return event_line(item, accepted, spell if with_text else None).plain


def test_a_line_has_time_and_offset_and_the_tokens_as_text() -> None:
    assert line(sessions.completed(ids(1, 2))) == (
        "01:02:03.004  5:12      TurnCompleted     turn a: stop, 2 tokens 'bc'"
    )


def test_tokens_without_a_tokenizer_are_ids_and_long_ones_are_cut() -> None:
    assert line(sessions.progressed(ids(7)), with_text=False).endswith("turn a: 1 token 7")
    assert line(sessions.progressed(ids(*[1] * 99))).endswith(f"99 tokens '{'b' * 59}...")


def test_an_event_that_the_fold_refuses_is_marked() -> None:
    assert "ignored" in line(sessions.closed(), accepted=False)


@pytest.mark.parametrize(
    ("record", "gist"),
    [
        (sessions.opened(task_id="t"), "s, policy p, train, task t"),
        (sessions.started(), "turn a: 2 prompt tokens, matched by root"),
        (sessions.dispatched(), "turn a: to w, dispatch 1 (first)"),
        (sessions.interrupted(b""), "turn a: preempted, no tokens"),
        (sessions.failed(), "turn a: 504 deadline"),
        (sessions.cancelled(), "turn a: gone"),
        (sessions.joined(), "turn a"),
        (sessions.rewarded(0.5), "reward 0.5"),
        (sessions.closed(reason="Traceback\nError: x"), "complete, policy: Error: x"),
        (sessions.finalized(), "rewarded"),
        (sessions.refused(), "404"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_gist_of_each_kind(record: Record, gist: str) -> None:
    assert line(record).endswith(f"  {gist}")
