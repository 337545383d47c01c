"""The fold of workers and their roles."""

import pytest

from seamlessflow.scheduler.state.workers import NO_ROLE
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, holds, joined_both


def test_a_worker_is_its_live_processes_with_the_tags_of_all() -> None:
    worker = fold(
        control.joined("w", "rollout", ("rollout",)), control.joined("w", "train", ("train",))
    )

    assert worker.workers["w"].tags == {"rollout", "train"}


def test_a_worker_without_processes_is_gone() -> None:
    assert not fold(control.joined("w"), control.lost("w")).workers


def test_losing_an_incarnation_that_was_replaced_changes_nothing() -> None:
    state = fold(control.joined("w", incarnation="2"), control.lost("w", incarnation="1"))

    assert "w" in state.workers


def test_losing_the_process_of_the_role_ends_the_role() -> None:
    state = fold(*joined_both("w"), *holds("w", "train"), control.lost("w", "train"))

    assert state.workers["w"].role == NO_ROLE


def test_losing_the_other_process_leaves_the_role() -> None:
    state = fold(*joined_both("w"), *holds("w", "train"), control.lost("w", "rollout"))

    assert state.workers["w"].role == "train"


def test_acquiring_an_older_assignment_does_not_count() -> None:
    state = fold(
        control.joined("w"),
        control.assigned("w", assignment=2),
        control.acquired("w", assignment=1),
    )

    assignment = state.workers["w"].assignment
    assert assignment is not None and assignment.acquired_ms is None


def test_a_role_that_timed_out_is_no_role() -> None:
    state = fold(*joined_both("w"), control.assigned("w", "train"), control.timed_out("w"))

    assert state.workers["w"].role == NO_ROLE
    assert state.workers["w"].failures["train"].count == 1


def test_a_role_acquired_after_its_time_out_counts_while_nothing_newer_was_assigned() -> None:
    state = fold(
        *joined_both("w"),
        control.assigned("w", "train"),
        control.timed_out("w"),
        control.acquired("w", "train"),
    )

    assert state.workers["w"].role == "train"
    assert not state.workers["w"].failures


@pytest.mark.parametrize(("number", "role"), [(0, NO_ROLE), (1, "train")])
def test_a_role_released_unasked_is_given_up(number: int, role: str) -> None:
    preempted = [control.assigned("w", "train", 1)] if number else []
    state = fold(
        *joined_both("w"), *holds("w"), *preempted, control.released("w", "rollout", number)
    )

    assert state.workers["w"].role == role
