"""State of a partition after claims, stale events, commands and takeovers."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.partition import (
    CommandsRead,
    Partition,
    PartitionProgress,
)
from seamlessflow.infra.errors import NewerRelease
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.commands import request_turn
from tests.builders.records.sessions import claimed, closed, finalized, opened, rewarded, started
from tests.builders.trajectories.decisions import context


def partition(progress: PartitionProgress | None = None) -> Partition:
    return Partition(0, progress or PartitionProgress(), "me")


def read(into: Partition, *events: Record, start: int = 0) -> list[bool]:
    """Apply the events. Return for each if it was accepted."""
    return [
        into.apply(event, offset, lambda _: "exact").accepted
        for offset, event in enumerate(events, start)
    ]


def test_the_first_claim_of_an_epoch_owns_the_partition() -> None:
    early, late = partition(), partition()

    read(early, claimed(1), claimed(1, "other"))
    read(late, claimed(1, "other"), claimed(1))

    assert (early.owned, late.owned) == (True, False)


def test_a_newer_claim_of_somebody_else_fences() -> None:
    mine = partition()

    read(mine, claimed(1), claimed(2, "other"), claimed(3))

    assert (mine.owned, mine.fenced) == (False, True)


def test_an_event_of_an_older_epoch_is_ignored() -> None:
    mine = partition()

    assert read(mine, claimed(2), opened()) == [True, False]
    assert not mine.sessions


def test_an_event_of_an_older_epoch_is_ignored_by_whoever_reads_from_there_too() -> None:
    log = [claimed(1), claimed(2), opened(epoch=2), rewarded(epoch=1)]
    before = partition()
    read(before, *log[:3])
    rebuild = before.committable()[1].rebuild

    after = partition(PartitionProgress.decode(before.committable()[1].encode()))

    assert read(after, *log[rebuild:], start=rebuild) == [True, False]


def test_a_session_with_newer_rules_stops_the_fold() -> None:
    mine = partition()

    with pytest.raises(NewerRelease, match=rf"sessions\[0\]@7 has session s .*{FOLD_VERSION + 1}"):
        read(mine, opened(fold_version=FOLD_VERSION + 1), start=7)
    assert mine.sessions == {}


def test_a_session_opened_under_an_older_epoch_is_read_again() -> None:
    log = [claimed(1), opened(epoch=1), claimed(2), rewarded(epoch=2)]
    before = partition()
    read(before, *log)
    rebuild = before.committable()[1].rebuild

    after = partition(PartitionProgress.decode(before.committable()[1].encode()))

    assert read(after, *log[rebuild:], start=rebuild) == [True, True, True]


def test_commands_are_committed_up_to_the_first_that_is_not_read_back() -> None:
    mine = partition()
    mine.next_request = 8
    mine.commands = {"open": 5, "reward": 7}
    read(mine, claimed(1), opened())

    assert mine.committable()[0] == 7


def test_an_event_that_does_not_count_settles_no_command() -> None:
    mine = partition()
    mine.next_request = 8
    mine.commands = {"reward": 7}

    read(mine, claimed(1), claimed(2), opened(epoch=2), rewarded(epoch=1))

    assert mine.committable()[0] == 7


def test_a_command_that_came_twice_holds_back_no_less() -> None:
    mine = partition()
    mine.next_request = 8
    mine.commands = {"again": 7, "other": 6}
    read(mine, claimed(1))

    assert mine.committable()[0] == 6


def test_a_takeover_reads_from_the_oldest_open_session() -> None:
    mine = partition()
    read(mine, claimed(1), opened(), opened(session_id="t"))
    first = mine.committable()[1].rebuild
    read(mine, closed(), finalized(), start=3)
    mine.end(mine.sessions["s"])

    assert (first, mine.committable()[1].rebuild) == (1, 2)


def test_commands_of_a_session_that_ended_before_the_takeover_are_known() -> None:
    mine = partition()
    read(mine, opened(), rewarded(), closed(), finalized())
    mine.end(mine.sessions["s"])
    read(mine, claimed(1), start=4)

    assert mine.owned
    assert mine.carried_out == {"open", "reward", "close"}


def test_commands_that_a_name_s_earlier_session_or_nobody_took_are_known_too() -> None:
    mine = partition()
    refused = decide(None, request_turn("b"), context()).events
    first: dict[str, Any] = {"session_id": "s~1"}
    read(
        mine,
        opened(name="s", **first),
        started("a", **first),
        closed(await_reward_until_ms=9, **first),
        *refused,
        opened(session_id="s~2", name="s"),
        claimed(1),
    )

    assert {"request-a", "request-b"} <= mine.carried_out


def test_the_next_takeover_reads_as_far_back_until_the_commands_of_former_owners_are_read() -> None:
    mine = partition(PartitionProgress(1, 0, 0, 1))
    mine.read_again_to = None
    read(mine, opened(), closed(), finalized())
    mine.end(mine.sessions["s"])
    read(mine, claimed(2), start=3)
    rebuilds = []
    for mine.read_again_to, mine.next_request in ((None, 9), (9, 8), (9, 9)):
        rebuilds.append(mine.committable()[1].rebuild)

    assert rebuilds == [0, 0, 4]


def test_a_name_is_forgotten_with_its_last_session() -> None:
    mine = partition()
    read(mine, claimed(1), opened(session_id="s~1", name="s"), opened(session_id="s~2", name="s"))
    session_ids = [list(mine.named["s"])]
    mine.end(mine.sessions["s~2"])
    session_ids.append(list(mine.named["s"]))
    mine.end(mine.sessions["s~1"])

    assert session_ids == [["s~1", "s~2"], ["s~1"]]
    assert (mine.named, mine.used("s~1"), mine.used("s")) == ({}, True, False)


def test_a_session_is_unread_until_all_its_events_are_read_back() -> None:
    mine = partition()
    read(mine, claimed(1))
    mine.note_appended([opened(), rewarded()])
    read(mine, opened(), start=1)
    between = dict(mine.unread)
    read(mine, rewarded(), start=2)

    assert (between, dict(mine.unread)) == ({"s": 1}, {})


def test_a_record_that_does_not_belong_on_the_log_is_ignored() -> None:
    mine = partition()
    stray = control.expired()

    assert read(mine, claimed(1), stray, opened()) == [True, False, True]


def test_no_deadline_passes_before_a_measured_end_is_read() -> None:
    read = CommandsRead()
    before = read.as_of_ms(9, 1_000)
    read.note_end(end=9, asked_ms=900, now_ms=950)

    assert [before, read.as_of_ms(8, 1_000), read.as_of_ms(9, 1_000)] == [0, 0, 900]


def test_an_end_that_was_measured_first_is_reached_first() -> None:
    read = CommandsRead()
    read.note_end(end=9, asked_ms=1_000, now_ms=1_000)
    read.note_end(end=20, asked_ms=2_000, now_ms=2_000)

    assert read.as_of_ms(9, 2_000) == 1_000


def test_deadlines_wait_behind_a_take_over_for_as_long_as_nobody_answered() -> None:
    read = CommandsRead()
    read.note_takeover(last_event_ms=1_000)
    read.note_end(end=1, asked_ms=11_000, now_ms=11_000)

    assert [read.as_of_ms(1, 20_999), read.as_of_ms(1, 21_000)] == [0, 11_000]


def test_deadlines_wait_behind_an_outage_for_as_long_as_it_lasted_but_no_longer_than_30_s() -> None:
    short, long = CommandsRead(), CommandsRead()
    for read, away_ms in ((short, 8_000), (long, 127_000)):
        read.note_end(end=1, asked_ms=1_000, now_ms=1_000)
        read.as_of_ms(1, 1_000)
        read.note_end(end=1, asked_ms=1_000 + away_ms, now_ms=1_000 + away_ms)

    assert [short.as_of_ms(1, 16_999), short.as_of_ms(1, 17_000)] == [0, 9_000]
    assert [long.as_of_ms(1, 157_999), long.as_of_ms(1, 158_000)] == [0, 128_000]
