"""The index has place, time, type and key of each record, and cuts the log at a moment."""

import pytest

from seamlessflow.console.log.index import (
    EMPTY,
    GARBAGE,
    KINDS,
    NEWER,
    ROW_BYTES,
    IndexRow,
    LogIndex,
    kind_of,
)
from seamlessflow.console.log.moment import Moment, MomentNotOnLog
from seamlessflow.schemas.codec import encode
from tests.builders import garbage
from tests.builders.records import control

CONTROL = ("control", 0)
SESSIONS = ("sessions", 3)


def rows(*places: tuple[int, int], key: bytes | None = None) -> list[IndexRow]:
    return [IndexRow(offset, at_ms, 0, key, 10) for offset, at_ms in places]


def index(**partitions: list[IndexRow]) -> LogIndex:
    made = LogIndex()
    places = {"control": CONTROL, "sessions": SESSIONS}
    made.append({places[name]: batch for name, batch in partitions.items()})
    return made


def test_a_row_takes_less_than_forty_bytes() -> None:
    assert ROW_BYTES <= 40


def test_of_its_partition_a_moment_has_the_records_up_to_its_offset() -> None:
    made = index(control=rows((0, 10), (1, 20), (2, 20), (5, 30)))
    assert made.cut(Moment("control", 0, 1))[CONTROL] == 2
    assert made.cut(Moment("control", 0, 5))[CONTROL] == 4


def test_of_other_partitions_it_has_the_records_that_are_not_later() -> None:
    made = index(control=rows((0, 10), (1, 20), (2, 30)), sessions=rows((0, 5), (1, 20), (2, 21)))
    assert made.cut(Moment("control", 0, 1))[SESSIONS] == 2
    assert made.cut(Moment("sessions", 3, 2))[CONTROL] == 2


def test_a_clock_that_goes_back_takes_no_record_out_of_a_partition() -> None:
    made = index(control=rows((0, 10), (1, 50), (2, 20)), sessions=rows((0, 30), (1, 60)))
    later = made.cut(Moment("control", 0, 2))
    assert later == {CONTROL: 3, SESSIONS: 1}
    assert made.cut(Moment("sessions", 3, 0))[CONTROL] == 1


def test_what_is_appended_later_changes_no_earlier_cut() -> None:
    made = index(control=rows((0, 10), (1, 20)), sessions=rows((0, 5), (1, 25)))
    before = made.cut(Moment("control", 0, 1))
    made.append({CONTROL: rows((2, 30)), SESSIONS: rows((2, 15), (3, 40))})
    assert made.cut(Moment("control", 0, 1)) == before


def test_an_offset_without_a_record_stands_for_the_record_before_it() -> None:
    made = index(control=rows((0, 10), (4, 20)))
    assert made.row(Moment("control", 0, 3)) == 0


@pytest.mark.parametrize(
    "moment, reason",
    [
        (Moment("control", 0, 9), "the newest record that was read has the offset 4"),
        (Moment("control", 0, 1), "the log begins at the offset 2"),
        (Moment("tasks", 0, 0), "no record of this partition"),
    ],
)
def test_a_place_without_records_is_named(moment: Moment, reason: str) -> None:
    made = index(control=rows((2, 10), (4, 20)))
    with pytest.raises(MomentNotOnLog, match=reason):
        made.cut(moment)


def test_rows_stay_what_they_are_while_the_index_grows() -> None:
    made = LogIndex()
    for offset in range(1_000):
        made.append({CONTROL: rows((offset, offset))})
    assert made.partitions[CONTROL].column("offset").tolist() == list(range(1_000))
    assert made.memory < 2 * 40 * 1_000


def test_keys_are_found_whole_and_by_their_beginning() -> None:
    made = LogIndex()
    keys = [b"g-1.0.0", b"g-1.1.0", b"g-2.0.0", None, b"\xff\xfe"]
    made.append({CONTROL: [IndexRow(n, n, 0, key, 1) for n, key in enumerate(keys)]})
    assert [made.keys[number] for number in made.numbers_of("g-1.1.0")] == [b"g-1.1.0"]
    beginning = [made.keys[number] for number in made.numbers_beginning("g-1")]
    assert beginning == [b"g-1.0.0", b"g-1.1.0"]
    assert made.numbers_of("g-3") == made.numbers_of("g-1*") == []


def test_a_key_of_megabytes_takes_little_room_and_is_found() -> None:
    made = LogIndex()
    made.append({CONTROL: rows((0, 0), key=b"k" * 5_000_000)})
    assert len(made.keys[1]) < 400
    assert made.numbers_of("k" * 5_000_000) == [1]


@pytest.mark.parametrize(
    "value, kind",
    [
        (encode(control.claimed()), "SchedulerClaimed"),
        (b"", EMPTY),
        (b"garbage", GARBAGE),
        (b"\xc3\x01cut", GARBAGE),
        (garbage.NEWER, NEWER),
    ],
)
def test_a_type_is_told_by_the_header_alone(value: bytes, kind: str) -> None:
    assert KINDS[kind_of(value)] == kind


def test_the_newest_record_of_all_partitions_is_a_moment() -> None:
    assert LogIndex().newest() is None
    made = index(control=rows((0, 10), (1, 20)), sessions=rows((7, 30)))
    assert made.newest() == Moment("sessions", 3, 7)
