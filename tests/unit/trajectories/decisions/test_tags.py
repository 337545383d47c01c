"""Turns that ask for tags of their workers: two classes of devices, places, refusals."""

from collections import Counter
from random import Random

import pytest

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.decisions.fleet import (
    HEARTBEAT_VALID_MS,
    Needs,
    RolloutFleet,
)
from seamlessflow.infra.worker.tags import wishes_of
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.records.commands import request_turn
from tests.builders.records.fleet import heartbeat
from tests.builders.records.sessions import opened
from tests.builders.trajectories.decisions import context, fleet_with
from tests.builders.trajectories.session_builder import SessionBuilder, session_after

CAPACITY = 8
CLASSES = {"prefill": ("a0", "a1", "a2", "a3"), "decode": ("b0", "b1", "b2", "b3")}
NAMES = [name for names in CLASSES.values() for name in names]


def two_classes() -> RolloutFleet:
    fleet = fleet_with(*NAMES)
    for tag, names in CLASSES.items():
        for name in names:
            beat = heartbeat(name, "rollout", ("rollout", tag), capacity=CAPACITY)
            fleet.apply(beat, 0)
    return fleet


def place(fleet: RolloutFleet, *wishes: str, affinity: str | None = None) -> str | None:
    chosen = fleet.choose(Needs("p", wishes=wishes_of(wishes)), affinity)
    if chosen is None:
        return None
    fleet.add_turn(chosen.worker)
    return chosen.worker


def incarnation(fleet: RolloutFleet, worker: str) -> str:
    return fleet.workers[worker].incarnation


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_each_kind_of_turn_goes_to_its_class_while_that_has_places(share: float) -> None:
    fleet, draw = two_classes(), Random(0)
    running: dict[str, list[str]] = {"prefill": [], "decode": []}
    hits: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for _ in range(4_000):
        tag = "prefill" if draw.random() < share else "decode"
        worker = place(fleet, tag)
        assert worker is not None
        asked[tag] += 1
        hits[tag] += worker in CLASSES[tag]
        running[tag].append(worker)
        if len(running[tag]) > 28:  # of 32 places of the class
            ended = running[tag].pop(draw.randrange(len(running[tag])))
            fleet.remove_turn(ended, incarnation(fleet, ended))

    assert all(hits[tag] >= 0.95 * asked[tag] for tag in CLASSES)


def test_turns_spill_over_when_their_class_is_full_and_come_back_behind_that() -> None:
    fleet = two_classes()
    placed = [place(fleet, "decode") for _ in range(48)]
    assert [worker in CLASSES["decode"] for worker in placed] == [True] * 32 + [False] * 16

    fleet.remove_turn("b2", incarnation(fleet, "b2"))
    assert place(fleet, "decode", affinity="a0") == "b2"


def test_the_worker_with_the_prefix_counts_within_the_class() -> None:
    fleet = two_classes()

    assert place(fleet, "decode", affinity="b3") == "b3"
    assert place(fleet, "decode", affinity="a3") == "b0"


def test_a_required_tag_waits_for_its_workers() -> None:
    fleet = two_classes()
    placed = {place(fleet, "decode!") for _ in range(100)}
    assert placed == set(CLASSES["decode"])

    for name in CLASSES["decode"]:
        fleet.apply(control.assigned(name, "train", 2, epoch=0), 0)
    assert place(fleet, "decode!") is None
    assert place(fleet, "decode") in CLASSES["prefill"]


def test_tags_that_no_worker_has_are_known_from_heartbeats_of_the_last_seconds() -> None:
    fleet, now = two_classes(), HEARTBEAT_VALID_MS - 1
    assert not fleet.lacks(wishes_of(("decode!",)), now)
    assert not fleet.lacks(wishes_of(("hw:H20",)), now)
    assert fleet.lacks(wishes_of(("hw:H20!",)), now)
    assert not fleet.lacks(wishes_of(("hw:H20!",)), now + 1)
    for name in CLASSES["decode"]:
        fleet.apply(control.lost(name, incarnation=incarnation(fleet, name)), 0)
    assert fleet.lacks(wishes_of(("decode!",)), now)


def test_a_worker_that_is_back_counts_although_its_loss_is_read_behind_its_heartbeat() -> None:
    fleet = fleet_with("w")
    for name in ("before", "after"):
        beat = heartbeat("w", "rollout", ("rollout", "hw:B"), incarnation=name)
        fleet.apply(beat, 0)
    fleet.apply(heartbeat("another", "rollout", ("rollout",)), 0)
    fleet.apply(control.lost("w", incarnation="before"), 0)

    assert not fleet.lacks(wishes_of(("hw:B!",)), 0)


def test_turns_that_wait_are_tried_again_when_a_worker_tells_its_tags() -> None:
    fleet = fleet_with("w")
    before = fleet.arrivals
    fleet.apply(heartbeat("w", "rollout", ("rollout", "hw:B"), at_ms=5), 5)

    assert fleet.arrivals > before
    assert place(fleet, "hw:B!") == "w"


def test_a_turn_asks_for_the_tags_of_its_call_or_else_of_its_session() -> None:
    asking = opened(metadata={"worker_tags": "decode, hw:A"})
    session = SessionBuilder().apply(asking).session
    for call, tags in ((("prefill",), ("prefill",)), ((), ("decode", "hw:A"))):
        decision = decide(session, request_turn(tags=call), context())

        event, sent = decision.events
        assert isinstance(event, r.TurnStarted)
        assert isinstance(sent, r.TurnDispatched)
        assert event.tags == tags
        assert sent.reason == f"first, spilled over from {', '.join(tags)}"


def test_a_turn_that_requires_what_no_worker_of_the_fleet_has_is_refused() -> None:
    fleet = fleet_with("w")
    fleet.apply(heartbeat("w", "rollout", ("rollout", "hw:A")), 0)
    wants = request_turn(tags=("hw:B!",))

    decision = decide(session_after().session, wants, context(fleet))

    (event,) = decision.events
    assert isinstance(event, r.CommandRefused)
    assert (event.status, event.reason) == (503, "no_worker")
    assert "hw:B!" in event.detail
