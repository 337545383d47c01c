"""Groups that later steps train again: which, how often, how old, and after a restart."""

from dataclasses import replace

import pytest

from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.reuse import UsedGroup, UsedSession, in_order
from seamlessflow.trainer.data.rules import ReuseRules
from seamlessflow.trainer.recovery.resume import GroupsGone, Origin
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES

ONE_AGAIN = replace(RULES, max_staleness=9, reuse=ReuseRules(groups=1))


def marks(batch: Batch) -> dict[str, int]:
    """Return how many earlier steps trained each group, as the step records it."""
    return {group.group_id: group.reused for group in batch.members()}


def fed_for(steps: int, feed: FedDataloader) -> list[Batch]:
    """Feed two new groups to each step, sampled by its weights, and train it."""
    trained = []
    for step in range(steps):
        for name in (f"g{step}a", f"g{step}b"):
            feed.group(name, version=step)
        trained.append(feed.train(step))
    return trained


def test_a_later_step_trains_a_group_again_beside_its_new_ones_and_marks_it() -> None:
    first, second = fed_for(2, FedDataloader(rules=ONE_AGAIN))
    assert marks(first) == {"g0a": 0, "g0b": 0}
    new, again = second.new_groups, second.reused
    assert [prepared.group.group_id for prepared in new] == ["g1a", "g1b"]
    assert [prepared.group.group_id in ("g0a", "g0b") for prepared in again] == [True]
    assert marks(second)[again[0].group.group_id] == 1
    assert [chain.trained() for chain in again[0].chains] == [3, 3]


def test_without_reuse_every_group_is_trained_once() -> None:
    for batch in fed_for(3, FedDataloader(rules=replace(RULES, max_staleness=9))):
        assert set(marks(batch).values()) == {0}


def test_no_more_steps_train_a_group_than_it_has_uses() -> None:
    rules = replace(ONE_AGAIN, reuse=ReuseRules(groups=5, uses=3, max_staleness=9))
    trained = fed_for(6, FedDataloader(rules=rules))
    uses = [marks(batch).get("g0a") for batch in trained]
    assert uses == [0, 1, 2, None, None, None]


def test_tokens_older_than_the_limit_of_reuse_are_left_out_whatever_may_be_done_with_new_ones() -> (
    None
):
    rules = replace(ONE_AGAIN, on_stale="correct", reuse=ReuseRules(groups=9, uses=9))
    limited = replace(rules, reuse=replace(rules.reuse, max_staleness=2))
    trained = fed_for(5, FedDataloader(rules=limited))
    assert sorted(marks(trained[4])) == ["g2a", "g2b", "g3a", "g3b", "g4a", "g4b"]
    assert "g0a" in marks(fed_for(5, FedDataloader(rules=rules))[4])


def test_a_group_of_which_some_tokens_are_too_old_is_trained_with_the_rest() -> None:
    rules = replace(ONE_AGAIN, reuse=ReuseRules(groups=1, max_staleness=1))
    feed = FedDataloader(rules=rules)
    feed.session("old", 0, 1.0, version=0)
    feed.session("old", 1, 0.0, version=1)
    feed.control_state.steps_of[1] = 1
    feed.group("other", (0, 0))
    feed.train(1)
    for name in ("new", "newer"):
        feed.group(name, version=2)
    again = feed.train(2).reused
    assert [prepared.group.group_id for prepared in again] == ["old"]
    assert [chain.session_id for chain in again[0].chains] == ["old.1.0"]


def test_groups_that_taught_nothing_are_not_kept() -> None:
    feed = FedDataloader(rules=ONE_AGAIN)
    for name in ("equal", "alike"):
        feed.group(name, (1, 1))
    feed.train(0)
    for name in ("g1a", "g1b"):
        feed.group(name, version=1)
    assert feed.train(1).reused == ()


def test_the_newest_choice_takes_the_groups_that_were_trained_last() -> None:
    rules = replace(ONE_AGAIN, reuse=ReuseRules(groups=2, choice="newest", uses=9))
    trained = fed_for(4, FedDataloader(rules=rules))
    assert {prepared.group.group_id for prepared in trained[3].reused} == {"g2a", "g2b"}


def used(name: str, step: int) -> UsedGroup:
    return UsedGroup(name, step, 1, (UsedSession(f"{name}.0.0", 0, 0),))


def test_a_random_choice_depends_on_seed_and_step_and_not_on_the_order_in_memory() -> None:
    groups = [used(f"g{number}", number % 3) for number in range(8)]
    rules = ReuseRules(groups=8)
    once = in_order(groups, 5, rules)
    assert in_order(groups[::-1], 5, rules) == once
    assert sorted(once, key=lambda group: group.group_id) == groups
    assert in_order(groups, 6, rules) != once != in_order(groups, 5, replace(rules, seed=1))


def restarted(feed: FedDataloader, step: int) -> FedDataloader:
    """Return a dataloader that begins with a checkpoint of the steps before `step`."""
    reusable = feed.loader.store.recorded()
    origin = Origin(step, step, "a")
    return FedDataloader(*feed.commits, rules=feed.loader.rules, origin=origin, reusable=reusable)


def test_after_a_restart_the_same_groups_are_trained_again() -> None:
    """Holds invariant I6."""
    rules = replace(ONE_AGAIN, reuse=ReuseRules(groups=2, uses=3))
    whole = FedDataloader(rules=rules)
    fed_for(3, whole)
    for name in ("g3a", "g3b"):
        whole.group(name, version=3)
    expected = marks(whole.train(3))

    before = FedDataloader(rules=rules)
    fed_for(3, before)
    after = restarted(before, 3)
    for step in range(4):
        for name in (f"g{step}a", f"g{step}b"):
            after.group(name, version=step)
    assert marks(after.train(3)) == expected


def test_no_batch_is_formed_before_the_sessions_of_a_checkpoint_are_read_again() -> None:
    before = FedDataloader(rules=ONE_AGAIN)
    fed_for(1, before)
    after = restarted(before, 1)
    assert after.loader.wants_more(1)
    after.group("g0a")
    after.session("g0b", 0, 1.0)
    # Sessions of other partitions may come first.
    for name in ("g1a", "g1b"):
        for sample in range(2):
            kept, after.offset = after.offset, 0
            after.session(name, sample, float(sample), version=1)
            after.offset = kept
    assert after.next(1) is None
    after.session("g0b", 1, 0.0)
    assert len(after.train(1).reused) == 1


def test_a_checkpoint_names_the_place_from_which_their_sessions_are_read_again() -> None:
    feed = FedDataloader(rules=ONE_AGAIN)
    fed_for(2, feed)
    # The first group has both of its uses; the other three are kept.
    kept = {group.group_id for group in feed.loader.store.recorded()}
    lowest = min(
        session.offset for group in feed.loader.store.recorded() for session in group.sessions
    )
    assert len(kept) == 3
    assert feed.loader.low_water({3: 0}) == {3: lowest}


def test_a_group_whose_session_was_removed_from_the_log_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = FedDataloader(rules=ONE_AGAIN)
    fed_for(1, before)
    after = restarted(before, 1)
    after.session("g0a", 0, 1.0)
    after.offset += 1
    after.group("g0b")
    for name in ("g1a", "g1b"):
        after.group(name, version=1)
    assert [prepared.group.group_id for prepared in after.train(1).reused] == ["g0b"]
    assert "g0a is not trained again: session g0a.1.0 is not on the topic" in caplog.text


def test_a_recorded_step_trains_the_same_groups_again_whatever_the_settings_are_now() -> None:
    before = FedDataloader(rules=ONE_AGAIN)
    _, second = fed_for(2, before)
    resumed = FedDataloader(*before.commits, rules=replace(RULES, max_staleness=9))
    _, repeated = fed_for(2, resumed)
    assert repeated.members() == second.members()


def test_a_recorded_step_without_a_group_that_it_trained_again_ends_the_run() -> None:
    before = FedDataloader(rules=ONE_AGAIN)
    _, second = fed_for(2, before)
    resumed = FedDataloader(*before.commits, rules=ONE_AGAIN, origin=Origin(1, 1, "a"))
    for name in ("g1a", "g1b"):
        resumed.group(name, version=1)
    with pytest.raises(GroupsGone, match=second.reused[0].group.group_id):
        resumed.next(1)
