"""The role `train`: taken when it is free, given up on request; older decisions are ignored."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.roles.roles import ROLLOUT_SILENT_MS, TrainerRoles
from tests.builders.records import control, fleet


def assigned(role: str = "train", number: int = 1, **changes: Any) -> r.RoleAssigned:
    fields = {"incarnation": "me", "gang_epoch": 7 if role == "train" else 0, **changes}
    return control.assigned("w", role, number, **fields)


def lost(process: str, incarnation: str = "me", epoch: int = 1) -> r.WorkerLost:
    return control.lost("w", process, incarnation=incarnation, epoch=epoch)


ROLLOUT_ACQUIRED = control.acquired(incarnation="x")
ROLLOUT_RELEASED = control.released(incarnation="x")


def started(step: int = 0, gang_epoch: int = 7, epoch: int = 1) -> r.StepStarted:
    return control.started(["w"], step, gang_epoch=gang_epoch, epoch=epoch)


def fed(*records: Record) -> TrainerRoles:
    roles = TrainerRoles("w", "me")
    for record in records:
        roles.apply(record)
    return roles


def holding(*records: Record) -> TrainerRoles:
    roles = fed(assigned())
    roles.acquired()
    for record in records:
        roles.apply(record)
    return roles


def test_a_free_device_is_taken_at_once() -> None:
    assert fed(assigned()).due() == "acquire"


def test_the_device_is_taken_only_after_rollout_gave_it_up() -> None:
    roles = fed(ROLLOUT_ACQUIRED, assigned())
    assert roles.due() is None
    roles.apply(ROLLOUT_RELEASED)
    assert roles.due() == "acquire"


def test_a_rollout_process_that_died_holds_nothing() -> None:
    assert fed(ROLLOUT_ACQUIRED, assigned(), lost("rollout", "x")).due() == "acquire"


def test_the_device_is_given_up_when_the_worker_is_to_roll_out() -> None:
    roles = holding(assigned("rollout", 2))
    assert roles.due() == "release"
    roles.released()
    assert (roles.due(), roles.held, roles.assignment) == (None, None, 2)


def test_a_new_gang_is_joined_without_giving_the_device_up() -> None:
    roles = holding(assigned(number=2, gang_epoch=8))
    assert roles.due() == "acquire"
    roles.acquired()
    assert roles.may_start(started(gang_epoch=8))


@pytest.mark.parametrize(
    "record",
    [
        assigned("rollout", number=1),
        assigned("rollout", number=9, epoch=0),
        assigned(number=9, incarnation="another"),
    ],
)
def test_an_old_or_foreign_assignment_changes_nothing(record: r.RoleAssigned) -> None:
    roles = holding(record)
    assert (roles.due(), roles.assignment) == (None, 1)


def test_decisions_of_a_deposed_scheduler_are_ignored() -> None:
    claim = control.claimed(2)
    assert fed(claim, assigned()).due() is None
    assert fed(assigned(), claim, control.timed_out(assignment=1)).due() == "acquire"


def test_an_assignment_that_timed_out_is_forgotten_and_the_device_released_for_others() -> None:
    late = control.timed_out(assignment=1)
    roles = fed(ROLLOUT_ACQUIRED, assigned(), late, ROLLOUT_RELEASED)
    assert roles.due() == "release"
    roles.released()
    assert roles.due() is None


def test_a_step_starts_only_for_the_gang_at_hand() -> None:
    roles = holding()
    assert roles.may_start(started())
    assert not roles.may_start(started(gang_epoch=6))
    assert not fed(assigned()).may_start(started())


def test_a_gang_follows_a_step_once_though_its_start_is_written_again() -> None:
    roles = holding()
    roles.note_over(started().gang_epoch, started().step)
    # A trainer that started again announced its batch once more, and the gang stayed.
    assert not roles.may_start(started())
    assert roles.may_start(started(step=1))
    roles.apply(assigned(number=2, gang_epoch=8))
    roles.acquired()
    assert roles.may_start(started(gang_epoch=8))


def test_a_start_of_a_trainer_that_died_keeps_no_gang_from_its_step() -> None:
    roles = holding()
    dead, again, next_one = started(step=3), started(step=2), started(step=3)
    assert roles.may_start(dead)
    # It follows; the trainer that came back executes the step before again.
    roles.note_over(dead.gang_epoch, again.step)
    assert not roles.may_start(again)
    assert roles.may_start(next_one)


def test_a_start_counts_if_no_newer_scheduler_had_claimed_when_it_was_read() -> None:
    roles = holding()
    assert roles.counts(started()) and not roles.counts(started(epoch=0))
    roles.apply(control.claimed(2))
    assert roles.may_start(started())
    assert not roles.counts(started())


def test_a_process_that_was_given_up_comes_back_as_another_incarnation() -> None:
    roles = holding(lost("train"))
    assert roles.due() == "release"
    roles.released()
    assert roles.due() == "rejoin"
    roles.rejoined("again")
    roles.apply(assigned(number=3, incarnation="again"))
    assert roles.due() == "acquire"


def test_the_loss_of_an_earlier_incarnation_is_not_ours() -> None:
    assert holding(lost("train", "before")).due() is None


def test_a_heartbeat_tells_that_the_rollout_process_holds_the_devices() -> None:
    holds = fleet.heartbeat("w", role="rollout", at_ms=100_000)
    me = fleet.heartbeat("w", process="train", incarnation="me", at_ms=101_000)
    assert fed(holds, me, assigned()).due() is None
    late = replace(me, at_ms=100_001 + ROLLOUT_SILENT_MS)
    assert fed(holds, late, assigned()).due() == "acquire", "its sender was killed long ago"
    assert fed(holds, replace(ROLLOUT_RELEASED, at_ms=1), assigned()).due() is None
