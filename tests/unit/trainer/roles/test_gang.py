"""The gang that `control` shows, and the loss of one of its members."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.roles.gang import GangBroken, GangMismatch, GangWatch
from tests.builders.records import control


def assigned(worker: str, number: int, gang_epoch: int = 7, **changes: Any) -> r.RoleAssigned:
    fields = {"incarnation": f"{worker}-now", "gang_epoch": gang_epoch, **changes}
    return control.assigned(worker, "train", number, **fields)


LOST = control.lost("v", "train", incarnation="v-now", epoch=1)


def watched(*records: Record) -> GangWatch:
    watch = GangWatch()
    for record in (assigned("w", 1), assigned("v", 2), *records):
        watch.apply(record)
    return watch


def test_the_loss_of_a_member_breaks_a_gang_and_that_of_an_older_one_does_not() -> None:
    with pytest.raises(GangBroken, match="worker v"):
        watched(LOST).check(2)
    watched(assigned("u", 3, gang_epoch=8), LOST).check(2)
    watched(replace(LOST, incarnation="v-before")).check(2)


def met(*records: Record) -> GangWatch:
    """Return the watch of a process that met another before any gang was assigned."""
    watch = GangWatch(met={"v": "v-now"})
    for record in records:
        watch.apply(record)
    return watch


def test_the_loss_of_a_process_that_was_met_breaks_a_gang_that_is_not_assigned_yet() -> None:
    with pytest.raises(GangBroken, match="worker v"):
        met(LOST).check(2)
    met(replace(LOST, incarnation="v-before")).check(2)
    met(replace(LOST, process="rollout")).check(2)
    met(control.finished(4), LOST).check(2)


def test_an_assignment_to_an_earlier_life_of_a_process_that_was_met_breaks_nothing() -> None:
    earlier = assigned("v", 2, incarnation="v-before")
    met(earlier, replace(LOST, incarnation="v-before")).check(2)


def test_a_life_that_followed_so_soon_that_the_last_was_never_seen_breaks_the_gang() -> None:
    with pytest.raises(GangBroken, match="worker v"):
        met(control.joined("v", process="train", incarnation="v-next")).check(2)
    met(control.joined("v", process="train", incarnation="v-now")).check(2)
    met(control.joined("v", process="rollout", incarnation="v-next")).check(2)


def test_members_that_end_with_the_run_break_no_gang() -> None:
    ended = replace(LOST, reason="ended")
    over = control.finished(4)
    watched(over, ended).check(2)
    with pytest.raises(GangBroken):
        watched(over, assigned("v", 3, gang_epoch=8), ended).check(2)
    with pytest.raises(GangBroken):
        watched(ended).check(2)


def test_a_gang_of_one_is_not_broken_by_the_log() -> None:
    watched(LOST).check(1)


def test_a_gang_must_have_as_many_devices_as_the_trainer_has_ranks() -> None:
    watch, started = watched(), control.started(["w", "v"], 0, gang_epoch=7)
    watch.check(2, started)
    watch.check(8, replace(started, devices=8))
    with pytest.raises(GangMismatch, match="w, v: 8 devices"):
        watch.check(2, replace(started, devices=8))


def test_a_step_starts_only_for_the_newest_scheduler_and_gang() -> None:
    watch, started = watched(), control.started(["w", "v"], 3, gang_epoch=7, epoch=1)
    watch.apply(r.SchedulerClaimed(epoch=1, scheduler="s", at_ms=0))
    assert watch.counts(started) and watch.may_start(started, 3)
    assert not watch.may_start(started, 4)
    assert not watch.may_start(replace(started, gang_epoch=6), 3)
    assert not watch.counts(replace(started, epoch=0))


def test_an_older_scheduler_loses_no_member_of_a_gang() -> None:
    watched(control.claimed(2), LOST).check(2)
