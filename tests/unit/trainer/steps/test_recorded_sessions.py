"""The dataloader on sessions of another run: their staleness, their end, what is foreign."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import TrajectoryNode
from seamlessflow.trainer.data.batch import Batch, SkippedStep
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.recovery.resume import GroupsGone
from tests.builders.records import control
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES

RECORDED = replace(RULES, recorded=True, max_staleness=2)


def fed(last: int, follow: bool = False, **rules: Any) -> FedDataloader:
    feed = FedDataloader(rules=replace(RECORDED, **rules))
    feed.loader.left, feed.loader.follow = {3: last}, follow
    return feed


def names(batch: Batch | SkippedStep | None) -> list[str]:
    assert isinstance(batch, Batch)
    return [prepared.group.group_id for prepared in batch.groups]


def test_recorded_versions_count_as_steps_and_the_earliest_are_trained_first() -> None:
    feed = fed(last=5)
    feed.group("late", version=6)
    feed.group("now", version=4)
    assert feed.next(4) is None
    feed.group("early", version=2)
    batch = feed.next(4)
    assert names(batch) == ["early", "now"]
    assert isinstance(batch, Batch)
    assert [prepared.stale for prepared in batch.groups] == [0, 0]


def test_tokens_of_much_later_weights_are_as_stale_as_those_of_much_earlier_ones() -> None:
    feed = fed(last=3)
    feed.group("early", version=1)
    feed.group("late", version=7)
    assert feed.next(4) is None
    dropped = [record for record in feed.returned if isinstance(record, r.GroupDropped)]
    assert [(record.group_id, record.reason) for record in dropped] == [
        ("early", "stale"),
        ("late", "stale"),
    ]
    corrected = fed(last=3, on_stale="correct")
    corrected.group("early", version=1)
    corrected.group("late", version=7)
    assert names(corrected.next(4)) == ["early", "late"]


def test_the_order_in_which_partitions_are_read_changes_no_batch() -> None:
    for order in ("a", "b", "c"), ("c", "a", "b"):
        feed = fed(last=5)
        for name in order:
            feed.group(name)
        assert names(feed.next()) == ["a", "b"]


def test_all_of_a_recording_is_read_however_many_groups_wait() -> None:
    feed = fed(last=99)
    for number in range(9):
        feed.group(f"g-{number}")
    assert feed.loader.wants_more(0)


def test_a_followed_recording_is_read_to_where_it_ended_at_the_start_then_waited_for() -> None:
    feed = fed(last=4, follow=True)
    feed.group("g-0")
    feed.group("g-1")
    assert feed.next() is None
    feed.session("g-2", 0, 1.0)
    feed.returned += feed.loader.expirations(0)
    first = feed.next()
    assert isinstance(first, Batch)
    assert names(first) == ["g-0", "g-1"]
    feed.loader.consumed(first)
    assert (feed.next(1), feed.loader.used_up) == (None, False)
    feed.session("g-2", 1, 0.0)
    feed.group("g-3")
    assert names(feed.next(1)) == ["g-2", "g-3"]


def test_the_last_step_takes_what_is_left_and_unfinished_groups_end() -> None:
    feed = fed(last=3)
    feed.group("g-0")
    feed.session("g-1", 0, 1.0)
    assert (feed.next(), feed.loader.ended) == (None, False)
    feed.session("g-2", 0, 1.0)
    assert feed.loader.ended
    feed.returned += feed.loader.expirations(0)
    ready = [record.group_id for record in feed.returned if isinstance(record, r.GroupReady)]
    assert ready == ["g-0", "g-1", "g-2"]
    batch = feed.next()
    assert names(batch) == ["g-0", "g-1"]
    assert isinstance(batch, Batch)
    feed.loader.consumed(batch)
    last = feed.next(1)
    assert names(last) == ["g-2"]
    assert isinstance(last, Batch)
    feed.loader.consumed(last)
    assert (feed.next(2), feed.loader.used_up) == (None, True)


def test_a_recording_without_the_groups_of_a_step_to_repeat_ends_the_run() -> None:
    feed = FedDataloader(
        control.committed(0, (r.StepGroup(group_id="gone", sessions=("gone.0.0",)),)),
        rules=RECORDED,
    )
    feed.loader.left = {3: 1}
    feed.session("another", 0, 1.0)
    assert feed.next() is None
    feed.session("another", 1, 0.0)

    with pytest.raises(GroupsGone, match="such as gone: continue"):
        feed.next()


def test_evaluations_and_other_policies_are_read_over() -> None:
    feed = fed(last=1)
    feed.session("g-0", 0, 1.0, purpose="eval")
    feed.session("g-0", 1, 1.0, policy="other")
    assert (feed.returned, feed.loader.used_up) == ([], True)


def test_foreign_tokens_are_trained_only_if_asked_for() -> None:
    for asked in (False, True):
        feed = fed(last=3, train_foreign=asked)
        for sample in (0, 1):
            feed.session("g-0", sample, float(sample), nodes=foreign_nodes())
        ready = next(record for record in feed.returned if isinstance(record, r.GroupReady))
        assert ready.trainable_tokens == (6 if asked else 0)


def test_a_step_marks_the_sessions_of_which_it_trains_foreign_tokens() -> None:
    feed = fed(last=3, train_foreign=True)
    for sample in (0, 1):
        feed.session("g-0", sample, float(sample), nodes=foreign_nodes())
    feed.group("g-1")
    batch = feed.next()
    assert isinstance(batch, Batch)

    marks = {member.group_id: member.foreign for member in batch.members()}
    assert marks == {"g-0": ("g-0.0.0", "g-0.1.0"), "g-1": ()}
    assert facts(batch, feed.loader.clock(0))["foreign_share"] == 0.5


def test_foreign_tokens_that_stay_out_of_the_loss_are_not_marked() -> None:
    feed = fed(last=3)
    for sample in (0, 1):
        feed.session("g-0", sample, float(sample), nodes=foreign_nodes())
    feed.group("g-1")
    batch = feed.next()
    assert isinstance(batch, Batch)

    assert not any(member.foreign for member in batch.members())
    assert "foreign_share" not in facts(batch, feed.loader.clock(0))


def foreign_nodes() -> tuple[TrajectoryNode, ...]:
    prompt = TrajectoryNode(
        node_id=0,
        parent=-1,
        parent_end=0,
        start=0,
        length=2,
        origin="prompt",
        turn_id="",
        log_offset=-1,
    )
    fields: dict[str, Any] = {"node_id": 1, "parent": 0, "parent_end": 2, "start": 2, "length": 3}
    return prompt, replace(prompt, origin="foreign", turn_id="t", **fields)
