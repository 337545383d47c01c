"""A moment is a place on the log."""

import pytest

from seamlessflow.console.log.moment import BadMoment, Moment, parse_moment


@pytest.mark.parametrize(
    "text, moment",
    [
        ("control:1234", Moment("control", 0, 1234)),
        ("control:0:1234", Moment("control", 0, 1234)),
        ("sessions:3:77", Moment("sessions", 3, 77)),
        ("tasks.dlq:1:0", Moment("tasks.dlq", 1, 0)),
    ],
)
def test_a_moment_names_topic_partition_and_offset(text: str, moment: Moment) -> None:
    assert parse_moment(text) == moment
    assert parse_moment(str(moment)) == moment


def test_an_empty_moment_is_now() -> None:
    assert parse_moment("") is None


def test_a_topic_with_one_partition_needs_no_number() -> None:
    assert str(Moment("control", 0, 5)) == "control:5"
    assert str(Moment("sessions", 0, 5)) == "sessions:0:5"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("yesterday", "a moment is TOPIC:PARTITION:OFFSET"),
        ("control:-1", "a moment is"),
        ("nothing:0:1", "no topic nothing"),
        ("sessions:77", "sessions has several partitions"),
        ("control:1" + "0" * 30, "a moment is"),
        ("<script>:0:1", "a moment is"),
    ],
)
def test_another_text_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadMoment, match=reason):
        parse_moment(text)
