"""Stored sessions in batches: what is trained, recorded, counted, and executed again."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seamlessflow.schemas.records import StepGroup
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import ELSEWHERE
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.pairs import PairRules
from seamlessflow.trainer.data.rules import BatchRules
from seamlessflow.trainer.data.selection import SelectionRules
from seamlessflow.trainer.mixing.mixed_steps import MOST_FAILURES, MixerFailed, Mixing
from seamlessflow.trainer.mixing.mixers import Plan
from seamlessflow.trainer.mixing.pools import PoolRules
from seamlessflow.trainer.recovery.resume import GroupsGone, Origin
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES
from tests.builders.trainer.stored_sessions import MemoryTopics, mixing, recording
from tests.builders.trainer.trajectories import one_turn

POOLED = replace(RULES, pools={"own": None, "old": None})


def trained(batch: Batch) -> dict[str, float]:
    """Return the advantage of each session with trained tokens."""
    return {
        chain.session_id: float(chain.tokens.advantages_T[chain.tokens.trained_T][0])
        for chain in batch.chains()
    }


def members(batch: Batch) -> dict[str, StepGroup]:
    return {group.group_id: group for group in batch.members()}


def fed(
    mixer: Mixing, groups: Iterable[tuple[str, float, float]], rules: BatchRules = POOLED
) -> FedDataloader:
    """Return a dataloader with groups of two sessions of the task `t`."""
    feed = FedDataloader(rules=rules, mixing=mixer)
    for name, *rewards in groups:
        for sample, reward in enumerate(rewards):
            feed.session(name, sample, reward, task_id="t")
    return feed


def rescuing(*returns: tuple[float, ...], uses: int = 4) -> Mixing:
    topics = MemoryTopics(old=list(recording(*returns)))
    return mixing("rescue", topics, PoolRules(uses=uses))


def test_a_stored_success_takes_the_place_of_a_failure_and_gives_its_group_advantages() -> None:
    batch = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)]).train(0)
    # Returns 0 and 1 in place of 0 and 0: each is one deviation from their mean.
    assert trained(batch) == pytest.approx(
        {"g.1.0": -1, "old/s0.0": 1, "h.0.0": 1, "h.1.0": -1}, abs=1e-5
    )
    group = members(batch)["g"]
    assert group.sessions == ("g.0.0", "g.1.0")
    (each,) = group.replaced
    assert (each.session_id, each.by, each.pool, each.uses) == ("g.0.0", "old/s0.0", "old", 0)
    assert members(batch)["h"].replaced == ()


def test_the_session_that_left_is_counted_as_replaced() -> None:
    batch = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)]).train(0)
    clock = FedDataloader().loader.clock(0)
    metrics = facts(batch, clock)
    assert metrics["masked/replaced"] == 3
    assert metrics["stored_replaced"] == 1
    assert metrics["stored_share"] == 0.25
    assert metrics["reward_mean"] == 0.25  # of the new sessions alone


def test_tokens_of_another_log_are_of_no_version_of_this_run_and_never_too_old() -> None:
    batch = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)]).train(0)
    stored = next(chain for chain in batch.chains() if chain.session_id == "old/s0.0")
    assert set(stored.tokens.versions_T[stored.tokens.trained_T]) == {ELSEWHERE}
    metrics = facts(batch, FedDataloader().loader.clock(0))
    assert (metrics["staleness_mean"], metrics["staleness_max"]) == (0, 0)


def test_a_success_rescues_as_many_steps_as_it_has_uses() -> None:
    feed = fed(rescuing((1.0,), uses=2), [])
    uses = []
    for step in range(4):
        for name in ("a", "b"):
            for sample in range(2):
                feed.session(f"{name}{step}", sample, 0, step, task_id="t")
        batch = feed.train(step)
        uses.append([each.uses for group in batch.members() for each in group.replaced])
    assert uses == [[0], [1], [], []]


def test_a_group_that_a_filter_would_drop_is_rescued_before() -> None:
    rules = replace(POOLED, filters={"zero_variance": "drop"})
    feed = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)], rules)
    assert set(members(feed.train(0))) == {"g", "h"}


def test_the_runs_own_success_rescues_a_later_group() -> None:
    topics = MemoryTopics(own=[])
    feed = fed(mixing("rescue", topics), [("g", 1, 1), ("h", 0, 1)])
    topics.topics["own"] = [
        replace(one_turn(name, reward), group_id=name[0], task_id="t")
        for name, reward in (("g.0.0", 1), ("g.1.0", 1), ("h.0.0", 0), ("h.1.0", 1))
    ]
    feed.train(0)
    for name in ("i", "j"):
        for sample in range(2):
            feed.session(name, sample, 0, 1, task_id="t")
    batch = feed.train(1)
    by = [each.by for group in batch.members() for each in group.replaced]
    # The newest first. The sessions of g were in its batch, but a filter kept them from the loss.
    assert by == ["h.1.0", "g.1.0"]
    uses = [each.uses for group in batch.members() for each in group.replaced]
    assert uses == [1, 0]


def test_stored_groups_are_added_beside_the_new_ones() -> None:
    topics = MemoryTopics(old=list(recording((1, 0), (1, 1), (0, 1))))
    feed = fed(mixing("mix", topics, foreign=2), [("g", 1, 0), ("h", 1, 0)])
    batch = feed.train(0)
    assert [group.group.group_id for group in batch.new_groups] == ["g", "h"]
    added = [group for group in batch.members() if group.pool]
    assert {group.group_id: (group.pool, group.reused) for group in added} == {
        "old/s0": ("old", 0),
        "old/s2": ("old", 0),
    }
    sessions = {name for group in added for name in group.sessions}
    assert {name for name in trained(batch) if "/" in name} == sessions
    for name in ("i", "j"):
        feed.group(name, version=1)
    again = [group for group in feed.train(1).members() if group.pool]
    assert [group.reused for group in again] == [1, 1]


def test_a_selection_chooses_among_stored_sessions_too() -> None:
    chosen = SelectionRules(name="extremes", best=1, worst=1)
    feed = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)], replace(POOLED, selection=chosen))
    assert "old/s0.0" in trained(feed.train(0))


def test_a_stored_success_is_preferred_to_a_failure_of_its_group() -> None:
    rules = replace(POOLED, pairs=PairRules(name="extremes"))
    batch = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)], rules).train(0)
    pairs = [pair.names for group in batch.groups for pair in group.pairs]
    assert pairs == [("old/s0.0", "g.1.0"), ("h.0.0", "h.1.0")]


def test_a_session_whose_record_is_gone_is_forgotten_and_another_takes_its_place() -> None:
    topics = MemoryTopics(old=list(recording((1.0,), (1.0,))))
    mixer = mixing("rescue", topics)
    topics.topics["old"][1] = None
    batch = fed(mixer, [("g", 0, 0), ("h", 1, 0)]).train(0)
    assert [each.by for group in batch.members() for each in group.replaced] == ["old/s0.0"]
    assert mixer.pools["old"].group_of("old/s1.0") is None


@pytest.mark.parametrize("name", ["rescue", "mix"])
def test_a_recorded_step_is_executed_again_without_its_mixer(name: str) -> None:
    def fresh_feed(mixer: Mixing, *recorded: Any) -> FedDataloader:
        feed = FedDataloader(*recorded, rules=POOLED, mixing=mixer, origin=Origin())
        for group in ("g", "h"):
            for sample in range(2):
                feed.session(group, sample, 0 if group == "g" else sample, task_id="t")
        return feed

    def pools(mixer: str) -> Mixing:
        return mixing(mixer, MemoryTopics(old=list(recording((1, 0), (0, 1)))))

    feed = fresh_feed(pools(name))
    first = feed.train(0)
    assert first.stored
    again = fresh_feed(pools("deleted_module:mixer"), *feed.commits).next(0)
    assert isinstance(again, Batch)
    assert again.members() == first.members()
    for one_time, another in zip(first.chains(), again.chains(), strict=True):
        assert one_time.session_id == another.session_id
        for field in ("ids_T", "logprobs_T", "advantages_T", "versions_T"):
            np.testing.assert_array_equal(
                getattr(one_time.tokens, field), getattr(another.tokens, field)
            )


def test_a_recorded_step_whose_stored_session_is_gone_cannot_be_executed_again() -> None:
    feed = fed(rescuing((1.0,)), [("g", 0, 0), ("h", 1, 0)])
    feed.train(0)
    for mixer in (rescuing(), mixing("rescue", MemoryTopics(old=[None]))):
        again = FedDataloader(*feed.commits, rules=POOLED, mixing=mixer, origin=Origin())
        for group in ("g", "h"):
            for sample in range(2):
                again.session(group, sample, 0 if group == "g" else sample, task_id="t")
        with pytest.raises(GroupsGone, match="old/s0"):
            again.next(0)


def _raises(*_: object) -> Plan:
    raise RuntimeError("no idea")


def _knows_nothing(*_: object) -> str:
    return "nothing"


@pytest.mark.parametrize("function", ["_raises", "_knows_nothing"])
def test_a_mixer_that_fails_costs_the_stored_sessions_of_a_step(function: str) -> None:
    mixer = mixing(f"{__name__}:{function}", MemoryTopics(old=list(recording((1, 0)))))
    batch = fed(mixer, [("g", 0, 0), ("h", 1, 0)]).train(0)
    assert not batch.stored
    assert mixer.failures == 1


def test_a_mixer_that_always_fails_ends_the_run() -> None:
    mixer = mixing(f"{__name__}:_raises", MemoryTopics(old=[]))
    groups = fed(Mixing(), [("g", 0, 0)]).loader._grouping.ready.values()
    for step in range(MOST_FAILURES - 1):
        for _ in range(2):  # a batch may be planned twice
            mixer.planned(step, groups)
    with pytest.raises(MixerFailed, match=r"_raises failed for 100 steps.*no idea"):
        mixer.planned(MOST_FAILURES, groups)
