"""The fold over `control`: claims, idempotence, storing."""

import pytest

from scheduler.state.state import State, apply, from_json, to_json
from schemas.records import Record
from tests.builders.scheduler import events as e


def test_the_first_claim_of_an_epoch_wins() -> None:
    state = e.fold(e.claimed(1, "a"), e.claimed(1, "b"))

    assert (state.epoch, state.scheduler) == (1, "a")


def test_a_newer_claim_wins() -> None:
    state = e.fold(e.claimed(1, "a"), e.claimed(2, "b"))

    assert (state.epoch, state.scheduler) == (2, "b")


def test_a_decision_of_an_older_epoch_behind_a_newer_claim_is_ignored() -> None:
    state = e.fold(e.claimed(1), e.claimed(2), e.admitted("run-0", epoch=1))

    assert not state.ledger.groups


def test_a_decision_of_the_older_epoch_before_the_newer_claim_counts() -> None:
    state = e.fold(e.claimed(1), e.admitted("run-0", epoch=1), e.claimed(2))

    assert list(state.ledger.groups) == ["run-0"]


@pytest.mark.parametrize(
    "repeated",
    [
        e.admitted("run-0"),
        e.ready("run-0"),
        e.sample_failed("run-0", 1),
        e.dropped("run-1"),
        e.consumed("run-2"),
        e.acquired("w"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_repeated_record_changes_nothing(repeated: Record) -> None:
    before = [
        e.joined("w"),
        e.assigned("w"),
        e.admitted("run-0"),
        e.admitted("run-1"),
        e.admitted("run-2"),
        repeated,
    ]
    once = e.fold(*before)
    twice = apply(once, repeated)

    assert (twice.ledger, twice.workers) == (once.ledger, once.workers)


def test_a_stored_state_is_restored_as_it_was() -> None:
    state = e.fold(
        e.claimed(),
        *e.joined_both("w"),
        *e.holds("w", "train", 3, gang_epoch=2),
        e.timed_out("w", "train", 3),
        e.admitted("run-0"),
        e.sample_failed("run-0", 2),
        e.batch_ready(),
        e.completed(took_ms=5),
        e.usage("w", decoding_ms=5, tokens=10),
    )

    assert from_json(to_json(state)) == state


def test_a_state_stored_in_another_form_is_not_used() -> None:
    other = to_json(State()).replace(b'"form":"', b'"form":"0')

    assert from_json(other) is None
    assert from_json(b"") is None
