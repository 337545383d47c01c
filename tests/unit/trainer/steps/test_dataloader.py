"""The dataloader: batches when they are due, recorded steps as recorded, no needless wait."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import StepGroup
from seamlessflow.trainer.credit import TURN_REWARDS
from seamlessflow.trainer.data.advantages import Advantages
from seamlessflow.trainer.data.batch import Batch, SkippedStep
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.figures.of_batch import StepTokens
from seamlessflow.trainer.data.methods import RecordedMethodFailed
from seamlessflow.trainer.steps.dataloader import EXPIRY_LATEST_MS, EXPIRY_QUIET_MS
from tests.builders.records import control
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import GRPO, RULES
from tests.builders.trainer.trajectories import one_turn


def names(batch: Batch | SkippedStep | None) -> list[str]:
    assert isinstance(batch, Batch)
    return [prepared.group.group_id for prepared in batch.groups]


def admitted(name: str, version: int = 0, deadline_ms: int = 9) -> r.GroupAdmitted:
    return control.admitted(name, version=version, deadline_ms=deadline_ms)


def lost(feed: FedDataloader) -> dict[str, float]:
    """Return the metrics of what was lost since the last call, without lengths and counts."""
    metrics = feed.loader.drop_metrics()
    names = (name for name in metrics if not name.startswith("begun_"))
    return {name: metrics[name] for name in names if not name.endswith("_ended")}


def fails_above_1(episodes: Sequence[Episode]) -> Advantages:
    if max(episode.reward for episode in episodes) > 1:
        raise OverflowError("too high")
    return GRPO(episodes)


def committed(step: int, *groups: str) -> r.StepCommitted:
    members = tuple(StepGroup(group_id=g, sessions=(f"{g}.0.0", f"{g}.1.0")) for g in groups)
    return control.committed(step, members)


def test_a_batch_is_due_when_enough_groups_are_ready() -> None:
    feed = FedDataloader()
    feed.group("g-0")
    assert feed.next() is None
    feed.group("g-1")
    assert names(feed.next()) == ["g-0", "g-1"]


def test_a_group_that_went_on_over_an_update_is_in_the_next_batch_before_newer_ones() -> None:
    feed = FedDataloader()
    feed.session("long", 0, 1.0)
    for name in ("g-0", "g-1"):
        feed.group(name)
    first = feed.next()
    assert names(first) == ["g-0", "g-1"] and isinstance(first, Batch)
    feed.loader.consumed(first)
    feed.apply(committed(0, "g-0", "g-1"))
    for name in ("g-2", "g-3"):
        feed.group(name, version=1)
    feed.session("long", 1, 0.0, version=1)
    assert names(feed.next(1)) == ["long", "g-2"]


def test_a_consumed_batch_leaves_the_next_groups() -> None:
    feed = FedDataloader()
    for name in ("g-0", "g-1", "g-2", "g-3"):
        feed.group(name)
    batch = feed.next()
    assert isinstance(batch, Batch)
    feed.loader.consumed(batch)
    assert names(feed.next(1)) == ["g-2", "g-3"]


def test_the_share_of_sessions_that_a_limit_ended_is_a_metric() -> None:
    feed = FedDataloader()
    for sample, limit in enumerate(("time", "context", "", "time")):
        feed.session("g-0", sample, 0.0, limit=limit)
    feed.session("e-0", 0, 0.0, limit="time", purpose="eval")
    shares = {"ended_at/time": 0.5, "ended_at/context": 0.25}
    assert lost(feed) == shares
    assert lost(feed) == {}


def test_the_session_of_a_judge_is_of_no_group() -> None:
    feed = FedDataloader()
    for purpose, made in (("judge", 0), ("train", 1)):
        feed.session(purpose, 0, 1.0, group_size=1, purpose=purpose)
        assert len(feed.returned) == made


def test_stale_groups_are_given_up_and_others_take_their_place() -> None:
    feed = FedDataloader()
    feed.apply(*(committed(step) for step in range(5)))
    feed.group("old", version=0)
    for name in ("g-0", "g-1"):
        feed.group(name, version=4)
    assert names(feed.next(5)) == ["g-0", "g-1"]
    dropped = feed.returned[-1]
    assert isinstance(dropped, r.GroupDropped) and dropped.reason == "stale"
    metrics = {"dropped/stale": 1, "masked/stale": 6, "tokens_masked": 6, "tokens_over_age": 6}
    assert lost(feed) == metrics
    assert lost(feed) == {}


def test_a_recorded_step_is_put_together_as_it_was_recorded() -> None:
    feed = FedDataloader(committed(0, "g-2", "g-0"), committed(1, "g-1"))
    for name in ("g-0", "g-1"):
        feed.group(name)
    assert feed.next(0) is None
    feed.group("g-2")
    assert names(feed.next(0)) == ["g-2", "g-0"]
    assert feed.returned == [], "groups that were returned before are not returned again"
    assert names(feed.next(1)) == ["g-1"]


def test_a_group_for_which_a_method_fails_is_dropped_and_counted() -> None:
    feed = FedDataloader(rules=replace(RULES, estimator=fails_above_1))
    for name, rewards in {"g-0": (1, 0), "high": (2, 0), "g-1": (1, 0)}.items():
        feed.group(name, rewards)
    assert names(feed.next()) == ["g-0", "g-1"]
    dropped = feed.returned[-1]
    assert isinstance(dropped, r.GroupDropped)
    assert (dropped.group_id, dropped.reason) == ("high", "method_failed")
    assert "OverflowError: too high" in dropped.detail
    assert lost(feed) == {"dropped/method_failed": 1}


def test_a_step_whose_groups_were_all_lost_to_a_method_is_skipped() -> None:
    feed = FedDataloader(rules=replace(RULES, estimator=fails_above_1))
    for number in range(6):
        feed.group(f"g-{number}", (2, 0))
    assert feed.next() == SkippedStep(0)
    assert (feed.loader.given_up.failed, feed.loader.dropped.total()) == (6, 6)


def test_a_method_that_fails_in_a_recorded_step_ends_the_run() -> None:
    feed = FedDataloader(committed(0, "g-0", "g-1"), rules=replace(RULES, estimator=fails_above_1))
    feed.group("g-0")
    feed.group("g-1", (2, 0))
    with pytest.raises(RecordedMethodFailed, match=r"step 1 .* group g-1 .* too high") as raised:
        feed.next(0)
    assert raised.value.lasting


def test_a_recorded_skip_is_skipped_again() -> None:
    feed = FedDataloader(control.skipped())
    assert feed.next(0) == SkippedStep(0)


def test_a_step_is_trained_with_what_there_is_when_no_group_will_come() -> None:
    feed = FedDataloader()
    feed.group("g-0")
    for number in range(5):
        name = f"lost-{number}"
        feed.apply(admitted(name), control.expired(name))
    feed.returned += feed.loader.expirations(now_ms=EXPIRY_QUIET_MS)
    feed.apply(*feed.returned)
    assert names(feed.next()) == ["g-0"]


def test_a_step_is_skipped_when_every_group_was_lost() -> None:
    feed = FedDataloader()
    for number in range(6):
        feed.apply(admitted(f"lost-{number}"), control.expired(f"lost-{number}"))
    assert feed.next() is None
    feed.returned += feed.loader.expirations(now_ms=EXPIRY_QUIET_MS)
    assert feed.next() is None, "before it is on the log, a group may still come"
    feed.apply(*feed.returned)
    assert feed.next() == SkippedStep(0)


def test_groups_that_were_dropped_before_a_restart_still_count_for_their_step() -> None:
    lost = [f"lost-{number}" for number in range(6)]
    admissions = [admitted(name) for name in lost]
    drops = [control.dropped(name) for name in lost]
    early = FedDataloader(control.skipped(), *admissions, *drops)
    assert early.next(0) == SkippedStep(0)
    assert early.next(1) == SkippedStep(1), "the scheduler admits no other group before it"
    late = FedDataloader(*admissions, *drops, control.skipped())
    assert late.next(0) == SkippedStep(0)
    assert late.next(1) is None, "these were dropped for the skipped step"


def test_what_masked_the_groups_of_a_skipped_step_is_counted() -> None:
    feed = FedDataloader()
    for number in range(6):
        feed.group(f"g-{number}", masked="inexact")
    assert feed.next() == SkippedStep(0)
    assert feed.loader.given_up == StepTokens(0, Counter(inexact=6 * 2 * 3))
    metrics = {"dropped/filtered": 6, "masked/inexact": 36, "tokens_masked": 36}
    assert lost(feed) == metrics
    assert feed.loader.given_up == StepTokens()


def test_rewards_of_turns_that_the_estimator_does_not_use_are_warned_of_once() -> None:
    feed = FedDataloader(rules=replace(RULES, advantage="grpo"))
    made = one_turn("g-0.0.0", group="g-0", group_size=2)
    judged = replace(made, nodes=tuple(replace(node, reward=0.5) for node in made.nodes))
    assert feed.loader.add(made, 3, 0, now_ms=7) == []
    for offset, session in enumerate([judged, replace(judged, session_id="g-0.1.0", sample=1)]):
        feed.returned += feed.loader.add(session, 3, 1 + offset, now_ms=7)
    (warning,) = [record for record in feed.returned if isinstance(record, r.ProgressStalled)]
    assert (warning.what, warning.at_ms) == ("turn rewards", 7)
    assert "uses no rewards of turns" in warning.detail and "g-0.0.0" in warning.detail


@pytest.mark.parametrize("advantage", TURN_REWARDS)
def test_an_estimator_that_uses_rewards_of_turns_gets_no_warning(advantage: str) -> None:
    feed = FedDataloader(rules=replace(RULES, advantage=advantage))
    made = one_turn("g-0.0.0", group="g-0", group_size=2)
    judged = replace(made, nodes=tuple(replace(node, reward=0.5) for node in made.nodes))
    assert feed.loader.add(judged, 3, 0, now_ms=7) == []


def test_nothing_is_skipped_while_groups_are_under_way() -> None:
    feed = FedDataloader()
    for number in range(6):
        feed.apply(admitted(f"lost-{number}"), control.expired(f"lost-{number}"))
    feed.apply(*feed.loader.expirations(now_ms=EXPIRY_QUIET_MS), admitted("g-9"))
    assert feed.next() is None


def test_sessions_have_time_to_arrive_before_a_deadline_counts() -> None:
    feed = FedDataloader()
    feed.apply(control.expired("g-0"), now_ms=1000)
    feed.loader.add(one_turn("other", group="other"), 3, 0, now_ms=1000 + EXPIRY_QUIET_MS)
    assert feed.loader.expirations(1000 + EXPIRY_QUIET_MS) == []
    assert len(feed.loader.expirations(1000 + 2 * EXPIRY_QUIET_MS)) == 1


def test_a_busy_topic_does_not_put_a_deadline_off_for_ever() -> None:
    feed = FedDataloader()
    feed.apply(control.expired("g-0"), now_ms=0)
    feed.loader.add(one_turn("other", group="other"), 3, 0, now_ms=EXPIRY_LATEST_MS)
    assert len(feed.loader.expirations(EXPIRY_LATEST_MS)) == 1


def test_a_deadline_that_passed_while_no_trainer_ran_still_counts() -> None:
    feed = FedDataloader(admitted("g-0"), control.expired("g-0"))
    (dropped,) = feed.loader.expirations(EXPIRY_QUIET_MS)
    assert isinstance(dropped, r.GroupDropped)


def test_a_batch_can_wait_for_groups_that_would_be_too_old_afterwards() -> None:
    feed = FedDataloader(rules=replace(RULES, on_stale="wait"))
    feed.apply(committed(0), admitted("late", version=0))
    feed.group("g-0", version=1)
    feed.group("g-1", version=1)
    assert feed.next(1) is None
    feed.group("late")
    feed.apply(*feed.returned)
    assert names(feed.next(1)) == ["late", "g-0"]


def test_sessions_of_another_policy_are_not_ours() -> None:
    feed = FedDataloader()
    assert feed.loader.add(one_turn("s", policy="other"), 0, 0, 0) == []


def test_reading_stops_when_enough_is_ready_but_not_before_a_recorded_step() -> None:
    feed, resumed = FedDataloader(), FedDataloader(committed(0, "late"))
    for number in range(4):
        assert feed.loader.wants_more(0)
        feed.group(f"g-{number}")
        resumed.group(f"g-{number}")
    assert not feed.loader.wants_more(0)
    assert resumed.loader.wants_more(0)


def test_the_low_water_is_before_everything_that_is_not_over() -> None:
    feed = FedDataloader()
    start = {3: -2, 4: 17}
    assert feed.loader.low_water(start) == start
    for name in ("g-0", "g-1"):
        feed.group(name)
    feed.session("g-2", 0, 1)
    assert feed.loader.low_water(start) == {3: 0, 4: 17}
    batch = feed.next()
    assert isinstance(batch, Batch)
    feed.loader.consumed(batch)
    assert feed.loader.low_water(start) == {3: 4, 4: 17}
    feed.session("g-2", 1, 0)
    assert feed.loader.low_water(start) == {3: 4, 4: 17}
