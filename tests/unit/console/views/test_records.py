"""Records of all topics are found, decoded, and shown whatever is in them."""

from typing import Any

import pytest

from seamlessflow.console.log.moment import Moment, MomentNotOnLog
from seamlessflow.console.views.query import QueryRejected
from seamlessflow.console.views.records import RecordLine, RecordsPage, SettingChange
from seamlessflow.console.views.search import RecordQuery
from seamlessflow.console.web.console import AskedPage
from seamlessflow.console.web.text_search import records_with_text
from seamlessflow.infra.kafka.client import Received, dead_letter_headers
from seamlessflow.schemas.codec import encode
from tests.builders import garbage
from tests.builders.console import hostile
from tests.builders.console.course import lineage
from tests.builders.console.memory_log import RUN, console_of, history_of, items_of, raw_item
from tests.builders.records import content, control, sessions

CONTROL = items_of("control", [control.claimed(), control.joined("w"), control.joined("v")])
EVENTS = [
    raw_item("sessions", 3, number, 500 + 1_000 * number, encode(record), "s")
    for number, record in enumerate([sessions.claimed(), sessions.opened(), sessions.closed()])
]


def page(items: list[Received], **query: str) -> RecordsPage:
    _, shown = console_of(items).page(AskedPage("records", query))
    assert isinstance(shown, RecordsPage)
    return shown


def places(shown: RecordsPage) -> list[str]:
    return [line.moment for line in shown.lines]


def line(item: Received) -> RecordLine:
    (shown,) = page([item]).lines
    return shown


def test_records_of_all_topics_stand_in_the_order_of_time_the_newest_first() -> None:
    assert places(page([*CONTROL, *EVENTS])) == [
        "sessions:3:2",
        "control:2",
        "sessions:3:1",
        "control:1",
        "sessions:3:0",
        "control:0",
    ]


@pytest.mark.parametrize(
    "query, expected",
    [
        ({"topic": "control"}, ["control:2", "control:1", "control:0"]),
        ({"partition": "3"}, ["sessions:3:2", "sessions:3:1", "sessions:3:0"]),
        ({"type": "WorkerJoined"}, ["control:2", "control:1"]),
        ({"key": "s", "type": "SessionOpened"}, ["sessions:3:1"]),
        ({"key": "nothing"}, []),
        ({"since": "1500", "until": "2000"}, ["control:2", "sessions:3:1"]),
        ({"since": "1970-01-01T00:00:02"}, ["sessions:3:2", "control:2"]),
        ({"since": "1970-01-01 00:00:02Z"}, ["sessions:3:2", "control:2"]),
        ({"since": "1970-01-01T01:00:02+01:00"}, ["sessions:3:2", "control:2"]),
        ({"until": "1970-01-01 00:00"}, ["control:0"]),
        ({"since": "1970-01-01T00:00:02.500"}, ["sessions:3:2"]),
        ({"at": "control:1"}, ["control:1", "sessions:3:0", "control:0"]),
        ({"before": "control:1"}, ["sessions:3:0", "control:0"]),
    ],
)
def test_a_query_finds_what_fits(query: dict[str, str], expected: list[str]) -> None:
    assert places(page([*CONTROL, *EVENTS], **query)) == expected


def saying(*texts: str) -> list[Received]:
    messages = [content.message("user", text) for text in texts]
    events = [
        sessions.started(f"t{number}", new_messages=(message,))
        for number, message in enumerate(messages)
    ]
    return items_of("sessions", events)


@pytest.mark.parametrize("text", ["second", "SECOND", 'the "second" one', "zweite Größe"])
def test_a_text_is_looked_for_in_the_bytes_of_records(text: str) -> None:
    items = saying("the first one", 'the "second" one', "third, die zweite Größe")
    shown = page([*items, *CONTROL], text=text)
    assert places(shown)[-1:] == ["sessions:0:2" if "zweite" in text else "sessions:0:1"]
    assert (shown.looked, shown.older) == (6, "")
    assert shown.lines[0].session_id == sessions.SESSION


def test_a_search_for_a_text_goes_on_behind_what_it_read() -> None:
    items = saying(*("yes" if number % 3 else "no" for number in range(1_700)))
    seen: list[str] = []
    before = ""
    while True:
        shown = page(items, text="yes", count="200", before=before)
        seen += places(shown)
        before = shown.older
        if not before:
            break
    assert seen == [f"sessions:0:{n}" for n in reversed(range(1_700)) if n % 3]


def test_a_search_for_a_text_ends_when_its_time_is_over() -> None:
    history, _ = history_of(saying(*["no"] * 1_200))
    query = RecordQuery(text="yes")
    search, items, reading = records_with_text(history, history.index.whole(), query, most_s=0)
    assert (items, search.more, reading.looked) == ([], True, 500)
    assert reading.last == Moment("sessions", 0, 700)


def test_older_records_follow_without_a_gap_or_a_double() -> None:
    items = [*items_of("control", [control.claimed()] * 30), *EVENTS]
    seen: list[str] = []
    before = ""
    while True:
        shown = page(items, count="4", before=before)
        seen += places(shown)
        before = shown.older
        if not before:
            break
    assert len(seen) == len(set(seen)) == len(items)
    assert seen == places(page(items, count="100"))


def test_a_list_of_large_records_is_shorter_and_goes_on() -> None:
    large = [
        item._replace(size=30_000_000) for item in items_of("control", [control.claimed()] * 5)
    ]
    first = page(large)
    assert places(first) == ["control:4", "control:3"]
    assert places(page(large, before=first.older)) == ["control:2", "control:1"]


def test_records_that_kafka_has_deleted_since_are_counted() -> None:
    console = console_of(CONTROL)
    history = console._run_log
    del history._lookup.items[("control", 0), 1]  # type: ignore[attr-defined]
    _, shown = console.page(AskedPage("records", {}))
    assert (shown.matching, shown.shown, shown.gone) == (3, 2, 1)


def test_fields_of_bytes_are_what_their_names_say() -> None:
    texts = {field.name: field.text for field in line(EVENTS[1]).fields}
    assert texts["session_id"] == "s"
    started = raw_item("sessions", 0, 0, 0, encode(sessions.started()))
    texts = {field.name: field.text for field in line(started).fields}
    assert texts["suffix_ids"] == "2 tokens: 1 2"
    assert texts["history_key"] == "68" * 16


@pytest.mark.parametrize("value", [b"garbage", b"\xc3\x01cut", bytes(range(256)), garbage.NEWER])
def test_garbage_is_shown_as_bytes_with_the_reason(value: bytes) -> None:
    shown = line(raw_item("control", 0, 0, 0, value))
    assert not shown.readable
    names = [field.name for field in shown.fields]
    assert names == ["error", "bytes"]
    assert value[:4].hex(" ") in shown.fields[1].text


def test_a_record_cut_in_the_middle_is_garbage() -> None:
    shown = line(raw_item("control", 0, 0, 0, encode(control.joined("w"))[:-1]))
    assert (shown.type, shown.readable) == ("(unreadable)", False)


def test_a_dead_letter_has_its_source_and_the_command_that_retries_it() -> None:
    headers = dead_letter_headers("tasks", 3, 40, "wrong", [("traceparent", b"00")])
    shown = line(raw_item("tasks.dlq", 3, 7, 0, b"garbage", "key", headers))
    assert shown.retry == f"seamlessflow dlq retry tasks 3 40 --out {RUN}"
    assert (shown.type, shown.gist, shown.source) == ("(dead letter)", "wrong", "tasks:3:40")
    assert ("source-header-traceparent", "00") in shown.headers


def test_a_letter_of_another_program_has_no_command() -> None:
    assert line(raw_item("tasks.dlq", 3, 7, 0, b"garbage")).retry == ""


def test_a_mark_of_a_retry_is_no_letter() -> None:
    headers = [("retried-letter", b"7"), ("retried-to", b"99")]
    shown = line(raw_item("tasks.dlq", 3, 8, 0, b"", None, headers))
    assert (shown.type, shown.retry) == ("(retried)", "")
    assert "99" in shown.gist


def test_a_long_field_is_cut_in_a_list_and_longer_on_its_own_page() -> None:
    item = raw_item("control", 0, 0, 0, encode(control.stalled(detail=hostile.LONG)))
    detail = {field.name: field for field in line(item).fields}["detail"]
    assert (len(detail.text), detail.left_out) == (20_000, 5_000_000 - 20_000)
    _, alone = console_of([item]).page(AskedPage("record", {}, "control:0"))
    detail = {field.name: field for field in alone.fields}["detail"]
    assert len(detail.text) == 400_000


def test_times_are_shown_as_dates_beside_their_numbers() -> None:
    item = raw_item("control", 0, 0, 0, encode(control.claimed(at_ms=1_795_759_344_188)))
    texts = {field.name: field.text for field in line(item).fields}
    assert texts["at_ms"] == "1795759344188 (2026-11-27 06:02:24 UTC)"


def test_the_start_of_a_trainer_has_the_settings_that_changed() -> None:
    starts = [
        lineage("a", "", 0, lr=0.1, masks=["a"], old=1),
        control.claimed(),
        lineage("b", "a", 3, lr=0.2, masks=["a"], new=None),
        lineage("c", "b", 5, lr=0.2, masks=["a"], new=None),
    ]
    console = console_of(items_of("control", starts))
    shown = [console.page(AskedPage("record", {}, f"control:{n}"))[1].changes for n in range(4)]
    assert shown[:2] == [None, None]
    assert shown[2] == (
        SettingChange("trainer.lr", "0.1", "0.2"),
        SettingChange("trainer.old", "1", None),
    )
    assert shown[3] == ()
    page = console.html(AskedPage("record", {}, "control:2"))
    assert '<th scope="row">trainer.lr</th><td class="long">0.1</td>' in page


@pytest.mark.parametrize(
    "query",
    [
        {"topic": "nothing"},
        {"type": "Nothing"},
        {"partition": "x"},
        {"since": "yesterday"},
        {"until": "2026-11-31 10:15"},
        {"count": "100000"},
    ],
)
def test_a_wrong_part_of_a_query_is_named(query: dict[str, Any]) -> None:
    (name,) = query
    with pytest.raises(QueryRejected, match=f"^{name}="):
        page(CONTROL, **query)


def test_a_place_without_a_record_is_named() -> None:
    with pytest.raises(MomentNotOnLog, match="control:9"):
        console_of(CONTROL).page(AskedPage("record", {}, "control:9"))
    with pytest.raises(MomentNotOnLog):
        page(CONTROL, before=str(Moment("sessions", 0, 1)))
