"""Verdicts on transactions from Kafka's own record of them."""

import struct

import pytest

from seamlessflow.infra.kafka.transactions.verdicts import (
    IdState,
    Judgement,
    StateRecord,
    Verdict,
    judge,
    state_records,
)
from tests.builders.brokers.hanging import key, value

PLACE = ("__consumer_offsets", 3)
OTHER = ("trajectories", 0)


def states(*steps: tuple[IdState, tuple[str, int] | None], name: str = "t-m") -> list[StateRecord]:
    return [
        StateRecord(name, 7, state, frozenset([place] if place else [])) for state, place in steps
    ]


@pytest.mark.parametrize(
    ("prepared", "complete", "verdict"),
    [
        (IdState.PREPARE_COMMIT, IdState.COMPLETE_COMMIT, Verdict.COMMITTED),
        (IdState.PREPARE_ABORT, IdState.COMPLETE_ABORT, Verdict.ABORTED),
    ],
)
def test_a_transaction_that_counts_as_ended_hangs_with_the_end_that_was_decided(
    prepared: IdState, complete: IdState, verdict: Verdict
) -> None:
    history = states((IdState.ONGOING, PLACE), (prepared, PLACE), (complete, None))
    assert judge(history, 7, PLACE) == Judgement("t-m", verdict)


def test_its_id_may_have_had_other_transactions_and_lives_since() -> None:
    history = states(
        (IdState.ONGOING, PLACE),
        (IdState.PREPARE_COMMIT, PLACE),
        (IdState.COMPLETE_COMMIT, None),
        (IdState.EMPTY, None),
        (IdState.ONGOING, OTHER),
        (IdState.PREPARE_ABORT, OTHER),
        (IdState.COMPLETE_ABORT, None),
    )
    assert judge(history, 7, PLACE).verdict is Verdict.COMMITTED


def test_the_newest_transaction_of_the_partition_counts() -> None:
    history = states(
        (IdState.PREPARE_COMMIT, PLACE),
        (IdState.COMPLETE_COMMIT, None),
        (IdState.PREPARE_ABORT, PLACE),
        (IdState.COMPLETE_ABORT, None),
    )
    assert judge(history, 7, PLACE).verdict is Verdict.ABORTED


@pytest.mark.parametrize("newest", [IdState.ONGOING, IdState.PREPARE_COMMIT, IdState.PREPARE_ABORT])
def test_one_that_kafka_still_ends_does_not_hang(newest: IdState) -> None:
    assert judge(states((newest, PLACE)), 7, PLACE).verdict is Verdict.UNDER_WAY


@pytest.mark.parametrize(
    "history",
    [
        [],
        states((IdState.EMPTY, None)),
        states((IdState.PREPARE_COMMIT, OTHER), (IdState.COMPLETE_COMMIT, None)),
        states((IdState.ONGOING, PLACE), (IdState.EMPTY, None)),
    ],
)
def test_one_whose_decision_is_not_recorded_is_not_guessed(history: list[StateRecord]) -> None:
    assert judge(history, 7, PLACE).verdict is Verdict.UNKNOWN


def test_other_ids_do_not_count() -> None:
    mine = states((IdState.ONGOING, PLACE))
    others = [
        StateRecord("t-other", 8, IdState.COMPLETE_COMMIT, frozenset()),
        StateRecord("t-other", 8, IdState.PREPARE_ABORT, frozenset([PLACE])),
    ]
    assert judge([*mine, *others], 7, PLACE) == Judgement("t-m", Verdict.UNDER_WAY)


def test_states_are_read_from_keys_and_values() -> None:
    state = StateRecord("t-ü", 9, IdState.PREPARE_COMMIT, frozenset([PLACE, OTHER, (OTHER[0], 5)]))
    deleted = (key("t-gone"), None)
    newer_key = (struct.pack(">h", 1) + b"?", b"?")
    assert state_records([deleted, newer_key, (key("t-m"), value(state))]) == [
        StateRecord("t-m", 9, IdState.PREPARE_COMMIT, state.partitions)
    ]


def test_compact_values_are_read_also() -> None:
    head = struct.pack(">hqhib", 1, 9, 0, 5_000, IdState.PREPARE_ABORT)
    topic = bytes([len(PLACE[0]) + 1]) + PLACE[0].encode()
    content = head + b"\2" + topic + b"\2" + struct.pack(">i", PLACE[1]) + b"\0" + bytes(17)
    assert state_records([(key("t-m"), content)]) == [
        StateRecord("t-m", 9, IdState.PREPARE_ABORT, frozenset([PLACE]))
    ]


def test_a_value_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(ValueError, match="ends too early"):
        state_records([(key("t-m"), b"\0\1\0")])
