"""Records of `control` and `fleet` in, moves out."""

from collections.abc import Sequence
from typing import Any

import pytest

from seamlessflow.infra.weights.manifest import ManifestUnknown, WeightsInvalid
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.roles.device import EngineMissing
from seamlessflow.producers.rollout.roles.keeper import AwaitedWeights
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    Load,
    Preload,
    Rejoin,
    Release,
)
from seamlessflow.producers.rollout.roles.roles import TRAINER_SILENT_MS, RolloutRoles, concerns
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control, fleet
from tests.builders.records.prompts import INCARNATION, WORKER
from tests.builders.rollout.roles import policy

MINE = INCARNATION


def heartbeat(
    process: str = "rollout", role: str = "none", at_ms: int = 100, incarnation: str = MINE
) -> r.WorkerHeartbeat:
    return fleet.heartbeat(WORKER, process, role=role, incarnation=incarnation, at_ms=at_ms)


def published(version: int, **changes: Any) -> r.WeightsPublished:
    place = {"directory": f"v{version}", "manifest_sha256": "sha"}
    return control.published(version, **place, **changes)


def assigned(number: int, role: str = "rollout", **changes: Any) -> r.RoleAssigned:
    incarnation, slot = (MINE, 4) if role == "rollout" else ("trainer-inc", None)
    fields = {"incarnation": incarnation, "slot": slot, **changes}
    return control.assigned(**{"worker": WORKER, "role": role, "assignment": number, **fields})


def lost(incarnation: str = MINE, process: str = "rollout", epoch: int = 1) -> r.WorkerLost:
    return control.lost(WORKER, process, incarnation=incarnation, epoch=epoch, at_ms=5_000)


def fed(*records: Record, loads_asleep: bool = True) -> RolloutRoles:
    roles = RolloutRoles(WORKER, MINE, policy="policy", loads_asleep=loads_asleep)
    for record in records:
        roles.apply(record)
    return roles


def holding(version: int = 0, assignment: int = 1, loads_asleep: bool = True) -> RolloutRoles:
    """A process that serves this version."""
    roles = fed(policy(version), heartbeat(), assigned(assignment), loads_asleep=loads_asleep)
    move = roles.next_move()
    assert isinstance(move, Acquire)
    roles.begin(move)
    assert roles.acquired(move)
    return roles


def training(loads_asleep: bool = True) -> RolloutRoles:
    """A process of version 0 that gave its role up, and whose trainer process took its own."""
    roles = holding(0, loads_asleep=loads_asleep)
    roles.apply(assigned(2, "train"))
    roles.begin(Release(2))
    roles.released()
    roles.apply(control.acquired(WORKER, "train", 2, incarnation="t", at_ms=500))
    return roles


def test_a_role_is_acquired_with_the_newest_weights() -> None:
    move = fed(policy(3), heartbeat(), assigned(1)).next_move()
    assert move == Acquire(1, 4, PublishedWeights(3, 3, "v3", "sha"), policy(3))


@pytest.mark.parametrize(
    "records",
    [
        [policy(), assigned(1)],
        [heartbeat(), assigned(1)],
        [policy(), heartbeat(), published(2)],
        [policy(), heartbeat(), assigned(1, worker="another")],
        [policy(), heartbeat(), assigned(1, incarnation="an earlier one")],
        [policy(), heartbeat(incarnation="an earlier one"), assigned(1)],
    ],
    ids=["fleet unread", "no weights", "no role", "other worker", "earlier one", "not joined"],
)
def test_nothing_is_done_without(records: Sequence[Record]) -> None:
    assert fed(*records).next_move() is None


def test_one_step_at_a_time() -> None:
    roles = fed(policy(), heartbeat(), assigned(1))
    move = roles.next_move()
    assert move is not None
    roles.begin(move)
    assert roles.next_move() is None


def test_a_trainer_that_holds_its_role_is_waited_for() -> None:
    roles = fed(policy(), heartbeat("train", "train"), heartbeat(), assigned(1))
    assert roles.next_move() is None
    roles.apply(control.released(WORKER, "train", 1, incarnation="t", at_ms=200))
    assert isinstance(roles.next_move(), Acquire)


def test_an_old_heartbeat_of_the_trainer_does_not_outweigh_a_newer_event() -> None:
    roles = fed(
        policy(),
        heartbeat(),
        control.acquired(WORKER, "train", 1, incarnation="t", at_ms=500),
        heartbeat("train", "none", 400),
    )
    roles.apply(assigned(1))
    assert roles.next_move() is None
    roles.apply(heartbeat("train", "none", 600))
    assert isinstance(roles.next_move(), Acquire)


def test_a_trainer_that_is_lost_or_long_silent_is_not_waited_for() -> None:
    gone = fed(policy(), heartbeat("train", "train"), heartbeat(), assigned(1))
    gone.apply(lost("trainer-inc", "train"))
    assert isinstance(gone.next_move(), Acquire)
    now = 100 + TRAINER_SILENT_MS + 1
    silent = fed(policy(), heartbeat("train", "train"), heartbeat(at_ms=now), assigned(1))
    assert isinstance(silent.next_move(), Acquire)


def test_another_role_for_the_worker_releases_this_one() -> None:
    roles = holding()
    roles.apply(assigned(2, "train"))
    assert roles.next_move() == Release(2)
    roles.begin(Release(2))
    roles.released()
    assert roles.held is None
    assert roles.next_move() is None


def test_another_incarnation_of_the_worker_releases_this_one() -> None:
    roles = holding()
    roles.apply(assigned(2, incarnation="a later one"))
    assert roles.next_move() == Release(2)


def test_only_a_newer_assignment_of_the_newest_scheduler_is_obeyed() -> None:
    roles = holding(assignment=5)
    for stale in (assigned(5, "train"), assigned(4, "train"), assigned(9, "train", epoch=0)):
        roles.apply(stale)
        assert roles.next_move() is None
    roles.apply(control.claimed(2))
    roles.apply(assigned(6, "train", epoch=1))
    assert roles.next_move() is None
    roles.apply(assigned(6, "train", epoch=2))
    assert roles.next_move() == Release(6)
    assert roles.assignment == 6


def test_a_scheduler_known_from_fleet_outweighs_an_older_one() -> None:
    assignment = fleet.assignment(worker=WORKER, role="train", epoch=7)
    roles = fed(policy(), assignment, heartbeat(), assigned(2, epoch=6))
    assert roles.next_move() is None


def test_a_role_that_went_away_while_it_was_taken_is_not_announced_but_released() -> None:
    roles = fed(policy(), heartbeat(), assigned(1))
    move = roles.next_move()
    assert isinstance(move, Acquire)
    roles.begin(move)
    roles.apply(assigned(2, "train"))
    assert roles.next_move() is None
    assert not roles.acquired(move)
    assert roles.next_move() == Release(2)


def test_the_same_role_assigned_anew_is_acquired_anew_without_a_release() -> None:
    roles = holding(assignment=1)
    roles.apply(assigned(2, epoch=2))
    move = roles.next_move()
    assert isinstance(move, Acquire)
    assert move.assignment == 2
    assert roles.held is not None


def test_published_weights_are_loaded_and_only_the_newest() -> None:
    roles = holding(0)
    roles.apply(published(1))
    move = roles.next_move()
    assert move == Load(PublishedWeights(1, 1, "v1", "sha"), policy(0))
    roles.begin(move)
    roles.apply(published(2))
    roles.apply(published(3))
    assert isinstance(move, Load)
    roles.loaded_weights(move)
    following = roles.next_move()
    assert isinstance(following, Load)
    assert following.weights.version == 3


def test_an_engine_that_sleeps_gets_the_newest_weights_while_the_trainer_holds_the_device() -> None:
    roles = training()
    assert roles.next_move() is None
    roles.apply(published(1))
    ahead = Preload(PublishedWeights(1, 1, "v1", "sha"), policy(0))
    assert roles.next_move() == ahead
    roles.begin(ahead)
    roles.apply(published(2))
    roles.apply(published(3))
    roles.apply(assigned(3))
    assert roles.next_move() is None
    roles.loaded_weights(ahead)
    newest = roles.next_move()
    assert isinstance(newest, Preload)
    assert newest.weights.version == 3
    roles.begin(newest)
    roles.apply(control.released(WORKER, "train", 3, incarnation="t", at_ms=900))
    roles.loaded_weights(newest)
    assert isinstance(roles.next_move(), Acquire)


def test_an_engine_that_loads_awake_alone_has_newer_weights_verified_once() -> None:
    roles = training(loads_asleep=False)
    roles.apply(published(1))
    ahead = roles.next_move()
    assert isinstance(ahead, Preload)
    roles.loaded_weights(ahead)
    assert (roles.next_move(), roles.loaded) == (None, 0)


def test_weights_that_cannot_be_loaded_ahead_are_tried_again_only_for_the_role() -> None:
    roles = training()
    roles.apply(published(1))
    ahead = roles.next_move()
    assert isinstance(ahead, Preload)
    roles.begin(ahead)
    assert roles.reject(ahead)
    assert roles.next_move() is None
    roles.apply(assigned(3))
    roles.apply(control.released(WORKER, "train", 3, incarnation="t", at_ms=900))
    again = roles.next_move()
    assert isinstance(again, Acquire)
    roles.begin(again)
    assert not roles.reject(again)


def test_the_fleet_record_of_known_weights_changes_nothing() -> None:
    roles = holding(3)
    roles.apply(policy(3))
    roles.apply(policy(2))
    assert roles.next_move() is None


def test_weights_of_another_policy_do_not_concern_it() -> None:
    roles = holding(0)
    other = published(9, policy="other")
    assert not concerns(other, WORKER, "policy")
    roles.apply(other)
    assert roles.next_move() is None


def test_unusable_weights_are_left_out_only_if_others_were_published() -> None:
    roles = holding(0)
    roles.apply(published(1))
    move = roles.next_move()
    assert isinstance(move, Load)
    roles.begin(move)
    assert not roles.reject(move)
    roles.begin(move)
    roles.apply(published(2))
    assert roles.reject(move)
    following = roles.next_move()
    assert isinstance(following, Load)
    assert following.weights.version == 2


def test_a_lost_incarnation_frees_the_device_and_joins_as_a_new_one() -> None:
    roles = holding()
    roles.apply(lost("an earlier one"))
    assert roles.next_move() is None
    roles.apply(lost())
    assert roles.next_move() == Release(1)
    roles.begin(Release(1))
    roles.released()
    assert roles.next_move() == Rejoin()
    roles.renew("inc-2")
    assert roles.next_move() is None
    roles.apply(heartbeat(incarnation="inc-2"))
    roles.apply(assigned(2, incarnation="inc-2"))
    assert isinstance(roles.next_move(), Acquire)


def test_a_loss_declared_by_an_older_scheduler_is_ignored() -> None:
    roles = holding()
    roles.apply(lost(epoch=0))
    assert roles.next_move() is None


def test_a_process_that_leaves_takes_no_other_role() -> None:
    roles = holding(assignment=1)
    roles.leave()
    assert roles.next_move() == Release(1)
    roles.begin(Release(1))
    roles.released()
    roles.apply(assigned(2))
    assert roles.next_move() is None


GONE = WeightsInvalid("v0", "manifest.json", "No such file or directory")


def test_a_process_without_an_engine_waits_some_minutes_for_weights_that_are_gone() -> None:
    awaited = AwaitedWeights()
    assert awaited.may_come(GONE, 1_000)
    assert awaited.again_ms > 1_000
    assert awaited.may_come(GONE, 300_000)
    assert not awaited.may_come(GONE, 301_000)


def test_it_does_not_wait_for_weights_that_no_other_start_can_read() -> None:
    assert not AwaitedWeights().may_come(ManifestUnknown("v0", "manifest.json", "kind x"), 0)
    assert not AwaitedWeights().may_come(EngineMissing(), 0)
