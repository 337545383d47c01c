"""The fold over `control`: claims, idempotence, storing."""

import pytest

from seamlessflow.scheduler.state.state import State, apply, form_of, from_json, to_json
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, holds, joined_both


def test_the_first_claim_of_an_epoch_wins() -> None:
    state = fold(control.claimed(1, "a"), control.claimed(1, "b"))

    assert (state.epoch, state.scheduler) == (1, "a")


def test_a_newer_claim_wins() -> None:
    state = fold(control.claimed(1, "a"), control.claimed(2, "b"))

    assert (state.epoch, state.scheduler) == (2, "b")


def test_a_decision_of_an_older_epoch_behind_a_newer_claim_is_ignored() -> None:
    state = fold(control.claimed(1), control.claimed(2), control.admitted("run-0", epoch=1))

    assert not state.first.ledger.groups


def test_a_decision_of_the_older_epoch_before_the_newer_claim_counts() -> None:
    state = fold(control.claimed(1), control.admitted("run-0", epoch=1), control.claimed(2))

    assert list(state.first.ledger.groups) == ["run-0"]


@pytest.mark.parametrize(
    "repeated",
    [
        control.admitted("run-0"),
        control.ready("run-0"),
        control.sample_failed("run-0", 1),
        control.dropped("run-1"),
        control.consumed("run-2"),
        control.acquired("w"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_repeated_record_changes_nothing(repeated: Record) -> None:
    before = [
        control.joined("w"),
        control.assigned("w"),
        control.admitted("run-0"),
        control.admitted("run-1"),
        control.admitted("run-2"),
        repeated,
    ]
    once = fold(*before)
    twice = apply(once, repeated)

    assert (twice.first.ledger, twice.workers) == (once.first.ledger, once.workers)


def test_a_stored_state_is_restored_as_it_was() -> None:
    state = fold(
        control.claimed(),
        *joined_both("w"),
        *holds("w", "train", 3, gang_epoch=2),
        control.timed_out("w", "train", 3),
        control.admitted("run-0"),
        control.sample_failed("run-0", 2),
        control.batch_ready(),
        control.completed(took_ms=5),
        control.usage("w", decoding_ms=5, tokens=10),
    )

    assert from_json(to_json(state)) == state


def test_a_state_stored_in_another_form_is_not_used() -> None:
    other = to_json(State()).replace(b'"form":"', b'"form":"0')

    assert from_json(other) is None
    assert from_json(b"") is None


def test_a_docstring_is_no_part_of_the_form() -> None:
    size = {"type": "integer"}
    plain = {"type": "object", "properties": {"description": size}}
    described = {"description": "A docstring.", **plain}

    assert form_of(described) == form_of(plain)
    assert form_of(plain) != form_of({"type": "object", "properties": {"size": size}})
