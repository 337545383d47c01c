"""Views of dead letters for the terminal."""

from collections import defaultdict

from rich.console import Console, RenderableType

from seamlessflow.recorded.dead_letters.letters import DeadLetter, RetryMark, mark_headers
from seamlessflow.recorded.dead_letters.listing import (
    counted,
    hex_dump,
    letter_view,
    list_table,
    places,
)
from tests.builders.letters import letter, on_topic
from tests.builders.records.tasks import task


def shown(view: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def mark(offset: int, at: int) -> RetryMark:
    made = on_topic("tasks", at, b"", mark_headers(letter("tasks", b"x", offset), 9))
    assert isinstance(made, RetryMark)
    return made


def test_letters_are_counted_by_topic_and_error_and_a_mark_counts_once() -> None:
    records: list[DeadLetter | RetryMark] = [
        letter("tasks", b"x", 0, source=4),
        letter("tasks", b"y", 1, source=5),
        letter("tasks", b"y", 2, source=5, error="another"),
        letter("control", b"y", 3),
        mark(0, 4),
        mark(0, 5),
    ]

    counts = counted(records)

    assert [(*kind, count.letters, count.retried) for kind, count in counts.items()] == [
        ("tasks", "an error", 2, 1),
        ("tasks", "another", 1, 0),
        ("control", "an error", 1, 0),
    ]
    same = counts["tasks", "an error"]
    assert (same.first_ms, same.last_ms, dict(same.sources)) == (0, 1_000, {3: [4, 5]})
    assert "3: 4-5" in shown(list_table(counts))


def test_a_record_of_another_program_is_listed_as_such() -> None:
    assert list(counted([on_topic("tasks", 0, b"x", ())])) == [
        ("tasks", "(written by another program)")
    ]


def test_places_are_runs_of_offsets_and_few_of_them() -> None:
    many = defaultdict(list, {1: [7, 8, 9, 12], 0: [0, 2, 4, 6, 8, 10, 12]})

    assert places(many) == "0: 0 2 4 6 8 ...; 1: 7-9 12"


def test_a_letter_that_can_be_decoded_shows_its_record_and_headers() -> None:
    view = shown(letter_view(letter("tasks", task(issued_at_ms=7), error="old"), [mark(0, 1)]))

    assert "traceparent: b'00'" in view and "issued_at_ms" in view
    assert "now at offset 9" in view


def test_a_letter_that_cannot_be_decoded_shows_its_bytes_and_the_reason() -> None:
    view = shown(letter_view(letter("tasks", b"garbage"), []))

    assert "cannot be decoded: no schema has the header 67617262616765" in view
    assert "00000000  67 61 72 62 61 67 65" in view


def test_a_hex_dump_ends_somewhere() -> None:
    dump = hex_dump(bytes(range(40)), 20).splitlines()

    assert len(dump) == 3
    assert dump[1].startswith("00000010  10 11 12 13 14") and dump[2] == "... 20 more bytes"
