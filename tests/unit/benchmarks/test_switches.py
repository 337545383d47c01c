"""Switches of a worker, read from a log, and the tokens that were lost in them."""

import pytest

from benchmarks.recorded.switches import switches, tokens_lost
from seamlessflow.schemas.records import Record
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trainer.trajectories import Run, trajectory

TRAINS = (
    control.assigned("w", "train", at_ms=1_000),
    control.released("w", "rollout", at_ms=1_010, took_ms=4, phases_ms={"pause": 3.0}),
    control.acquired("w", "train", at_ms=1_030, took_ms=20),
    control.started(["w"], at_ms=1_034),
    control.committed(at_ms=1_200),
    control.completed(metrics={"train_s": 0.16}, at_ms=1_300),
)
ROLLS_OUT = (
    control.assigned("w", "rollout", at_ms=2_000),
    control.released("w", "train", at_ms=2_050, took_ms=50),
    control.acquired("w", "rollout", at_ms=2_070, took_ms=15),
    control.assigned("w", "train", at_ms=3_000),
)


def test_a_switch_to_training_ends_where_the_work_of_the_step_begins() -> None:
    (switch,) = switches("w", TRAINS, [])["train"]
    assert switch.phases_ms == {"released": 10, "acquired": 20, "started": 4, "training": 6}
    assert switch.inside_ms["released: noticed"] == 6
    assert switch.inside_ms["released: pause"] == 3


def test_a_switch_to_rollout_ends_with_the_first_token_of_a_turn_that_came_after_it() -> None:
    log = (
        sessions.progressed(ids(1), at_ms=2_075),
        sessions.dispatched(1, worker="another", at_ms=2_080),
        sessions.dispatched(1, worker="w", at_ms=2_090),
        sessions.progressed(ids(1), at_ms=2_120),
    )
    (switch,) = switches("w", ROLLS_OUT, log)["rollout"]
    assert switch.phases_ms["dispatched"] == 20
    assert switch.phases_ms["first token"] == 30
    assert switch.total_ms == 120


def test_what_is_not_whole_is_no_switch() -> None:
    late: list[Record] = [
        sessions.dispatched(1, worker="w", at_ms=2_090),
        sessions.progressed(ids(1), at_ms=3_001),
    ]
    assert switches("w", TRAINS[:-1], [])["train"] == []
    assert switches("w", ROLLS_OUT, late)["rollout"] == []


@pytest.mark.parametrize(
    ("kept", "lost"),
    [
        pytest.param((10, 11, 12, 13, 14), 0, id="none"),
        pytest.param((10, 11, 13, 14), 1, id="the one of the hand-back"),
        pytest.param((10, 13, 14), 2, id="one before it also"),
        pytest.param((), 3, id="all"),
    ],
)
def test_tokens_of_a_turn_that_was_handed_back_are_lost_if_the_finished_turn_lacks_them(
    kept: tuple[int, ...], lost: int
) -> None:
    log = (
        sessions.dispatched(),
        sessions.progressed(ids(10, 11)),
        sessions.interrupted(ids(12), token_offset=2),
        sessions.dispatched("a", 2, worker="v", from_offset=3),
        sessions.progressed(ids(99), "b"),  # ends where it is
        sessions.completed(ids(13, 14), token_offset=3, dispatch=2, worker="v"),
        sessions.completed(b"", "b", token_offset=1),
    )
    made = trajectory([Run(kept, turn="a"), Run((98,), turn="b")], session="s")

    assert tokens_lost(log, [made]) == lost


def test_a_turn_that_did_not_end_has_lost_nothing() -> None:
    log = (sessions.dispatched(), sessions.interrupted(ids(10)))

    assert tokens_lost(log, [trajectory([], session="s")]) == 0
    assert tokens_lost((*log, sessions.completed(b"", dispatch=2)), []) == 0
