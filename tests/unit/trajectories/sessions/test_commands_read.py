"""Deadlines wait until all commands that came before them are read."""

from seamlessflow.consumers.trajectories.sessions.commands_read import CommandsRead


def test_no_deadline_passes_before_a_measured_end_is_read() -> None:
    read = CommandsRead()
    before = read.as_of_ms(9, 1_000)
    read.measured(end=9, asked_ms=900, now_ms=950)

    assert [before, read.as_of_ms(8, 1_000), read.as_of_ms(9, 1_000)] == [0, 0, 900]


def test_an_end_that_was_measured_first_is_reached_first() -> None:
    read = CommandsRead()
    read.measured(end=9, asked_ms=1_000, now_ms=1_000)
    read.measured(end=20, asked_ms=2_000, now_ms=2_000)

    assert read.as_of_ms(9, 2_000) == 1_000


def test_deadlines_wait_behind_a_take_over_for_as_long_as_nobody_answered() -> None:
    read = CommandsRead()
    read.taken_over(last_event_ms=1_000)
    read.measured(end=1, asked_ms=11_000, now_ms=11_000)

    assert [read.as_of_ms(1, 20_999), read.as_of_ms(1, 21_000)] == [0, 11_000]


def test_deadlines_wait_behind_an_outage_for_as_long_as_it_lasted_but_no_longer_than_30_s() -> None:
    short, long = CommandsRead(), CommandsRead()
    for read, away_ms in ((short, 8_000), (long, 127_000)):
        read.measured(end=1, asked_ms=1_000, now_ms=1_000)
        read.as_of_ms(1, 1_000)
        read.measured(end=1, asked_ms=1_000 + away_ms, now_ms=1_000 + away_ms)

    assert [short.as_of_ms(1, 16_999), short.as_of_ms(1, 17_000)] == [0, 9_000]
    assert [long.as_of_ms(1, 157_999), long.as_of_ms(1, 158_000)] == [0, 128_000]
