"""Workers that turns may go to, also those known only by a heartbeat from before the start."""

from typing import Any

from seamlessflow.consumers.trajectories.decisions.fleet import (
    HEARTBEAT_VALID_MS,
    Departure,
    Needs,
    RolloutFleet,
)
from seamlessflow.schemas.records import WorkerHeartbeat
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.trajectories.decisions import acquired, fleet_with

STARTED = 1_000_000


def beat(at_ms: int, **changes: Any) -> WorkerHeartbeat:
    fields = {"role": "rollout", "assignment": 1, "slot": 3, "version": 4, "policy": "p"}
    return heartbeat(at_ms=at_ms, **fields, **changes)


def fleet_of_one() -> RolloutFleet:
    """Return a fleet that knows one worker, by a heartbeat of five seconds ago."""
    fleet = RolloutFleet()
    fleet.apply(beat(STARTED - 5_000), STARTED)
    assert fleet.routable("w", "i")
    return fleet


def test_a_worker_that_is_not_heard_again_counts_no_longer() -> None:
    fleet = fleet_of_one()

    assert fleet.expire(STARTED + HEARTBEAT_VALID_MS - 1) == []
    assert fleet.expire(STARTED + HEARTBEAT_VALID_MS) == [Departure("w", True, "i")]
    assert not fleet.routable("w", "i")


def test_a_worker_that_is_heard_again_stays() -> None:
    fleet = fleet_of_one()
    fleet.apply(beat(STARTED + 500), STARTED + 501)

    assert fleet.expire(STARTED + HEARTBEAT_VALID_MS) == []
    assert fleet.routable("w", "i")


def test_an_older_heartbeat_of_the_same_time_shows_nothing() -> None:
    fleet = fleet_of_one()
    fleet.apply(beat(STARTED - 4_000), STARTED + 1)

    assert fleet.expire(STARTED + HEARTBEAT_VALID_MS) == [Departure("w", True, "i")]


def test_a_worker_that_takes_its_role_stays_until_it_is_told_to_leave() -> None:
    fleet = fleet_of_one()
    fleet.apply(acquired("w", 3), STARTED + 1)

    assert fleet.expire(STARTED + HEARTBEAT_VALID_MS) == []
    assert fleet.routable("w", "i")


def test_a_worker_that_fell_silent_is_learnt_of_again_when_it_is_heard() -> None:
    fleet = fleet_of_one()
    fleet.expire(STARTED + HEARTBEAT_VALID_MS)

    fleet.apply(beat(STARTED + 20_000), STARTED + 20_001)

    assert fleet.routable("w", "i")


def test_a_later_incarnation_takes_the_place_of_one_that_may_be_gone() -> None:
    fleet = fleet_of_one()

    left = fleet.apply(beat(STARTED - 1_000, incarnation="j"), STARTED)

    assert left == Departure("w", True, "i")
    assert fleet.routable("w", "j")


def test_a_heartbeat_moves_no_worker_that_took_its_role_meanwhile() -> None:
    fleet = fleet_of_one()
    fleet.apply(acquired("w", 3), STARTED + 1)

    fleet.apply(beat(STARTED - 1_000, incarnation="h"), STARTED + 2)

    assert fleet.routable("w", "i")


def test_a_worker_is_routed_to_from_acquiring_its_role_until_told_to_leave() -> None:
    fleet = fleet_with("w")
    assert fleet.choose(Needs("p"), None) is not None

    leaving = control.assigned("w", "train", 2, epoch=0, incarnation="t")
    fleet.apply(leaving, 0)
    assert fleet.choose(Needs("p"), None) is None

    released = control.released("w", assignment=2)
    assert fleet.apply(released, 0) == Departure("w", at_once=False)


def test_a_pinned_session_only_gets_workers_of_its_version() -> None:
    fleet = fleet_with("w")

    assert fleet.choose(Needs("p", 3), None) is None
    assert fleet.choose(Needs("p", 4), None) is not None


def test_a_decision_of_an_older_scheduler_is_ignored() -> None:
    fleet = fleet_with("w")
    fleet.apply(control.claimed(3), 0)
    lost = control.lost("w", epoch=2)

    assert fleet.apply(lost, 0) is None
    assert fleet.routable("w", "i")


def test_a_turn_goes_to_a_worker_that_has_the_weights_it_needs_unless_that_one_is_much_busier() -> (
    None
):
    fleet = fleet_with("a", "b", "c")
    fleet.apply(control.loaded(5, worker="c"), 0)
    needs = Needs("p", min_version=5)
    placed = []
    for _ in range(8):
        chosen = fleet.choose(needs, "a")
        assert chosen is not None
        fleet.add_turn(chosen.worker)
        placed.append(chosen.worker)

    assert placed == ["c"] * 5 + ["a"] * 3
    older = fleet.choose(Needs("p", min_version=4), "b")
    assert older is not None
    assert older.worker == "b"
