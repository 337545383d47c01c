"""Shared rollout workers: they go where turns queue, in proportion and without flapping."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise

import pytest

from seamlessflow.infra.worker.tags import SHARED
from seamlessflow.scheduler.decisions.decide import View, decide
from seamlessflow.scheduler.decisions.sharing import HYSTERESIS, balanced
from seamlessflow.scheduler.settings import RunSection, SchedulerSection
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.fleet import Fleet, apply
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.scheduler.inputs import rules_for, scheduler_settings

POLICIES = ("a", "b", "c")
SKEW = {"a": 10.0, "b": 3.0, "c": 1.0}
TAGS = ("rollout", SHARED)
RUN = RunSection(policy="a", policies=("a", "b"))
SETTINGS = scheduler_settings(RUN, SchedulerSection(min_dwell_s=0, balance_s=10))


def new(workers: int) -> dict[str, str]:
    return {f"w{number:02}": "" for number in range(workers)}


def off(chosen: Mapping[str, str], queued: Mapping[str, float]) -> float:
    """Return how many workers the policy is off that is furthest from its proportion."""
    counts, total = Counter(chosen.values()), sum(queued.values())
    return max(abs(counts[policy] - len(chosen) * queued[policy] / total) for policy in queued)


@pytest.mark.parametrize("workers", [4, 7, 14, 20, 50])
def test_a_skew_converges_to_within_one_worker_of_proportional(workers: int) -> None:
    begun = balanced(POLICIES, new(workers), {}, {}, ())
    assert max(Counter(begun.values()).values()) - min(Counter(begun.values()).values()) <= 1

    settled = balanced(POLICIES, begun, {}, SKEW, begun)
    assert off(settled, SKEW) <= 1
    assert set(settled.values()) == set(POLICIES), "each keeps one, or its turns would stand still"
    assert balanced(POLICIES, settled, {}, SKEW, settled) == settled


def test_loads_that_waver_move_no_worker_once_it_is_settled() -> None:
    draw = random.Random(1)
    chosen = balanced(POLICIES, new(14), {}, SKEW, new(14))
    for _ in range(500):
        queued = {policy: load * draw.uniform(0.95, 1.05) for policy, load in SKEW.items()}
        after = balanced(POLICIES, chosen, {}, queued, chosen)
        assert after == chosen


def moves(loads: Iterable[Mapping[str, float]], workers: int, dwell: int) -> list[tuple[int, str]]:
    """Return the round and the worker of each move, if one may move `dwell` rounds after another.

    The first round places the workers.
    """
    chosen = new(workers)
    since, history = dict.fromkeys(chosen, -dwell), list[tuple[int, str]]()
    for now, queued in enumerate(loads):
        settled = [name for name in chosen if now - since[name] >= dwell]
        after = balanced(tuple(queued), chosen, {}, queued, settled)
        moved = [name for name in chosen if chosen[name] and after[name] != chosen[name]]
        since |= dict.fromkeys(moved, now)
        history += [(now, name) for name in moved]
        chosen = after
    return history


@pytest.mark.parametrize("workers", [4, 9, 16])
def test_loads_around_the_threshold_of_a_move_make_at_most_one(workers: int) -> None:
    """Of two policies there is a quarter of a worker between a move and the one back."""
    draw = random.Random(workers)
    threshold = workers // 2 + (1 + HYSTERESIS) / 2
    for _ in range(20):
        centre = threshold + draw.uniform(-0.3, 0.3)
        wanted = [centre + draw.uniform(-0.12, 0.12) for _ in range(300)]
        loads = [{"a": load, "b": workers - load} for load in wanted]
        assert len(moves(loads, workers, 0)) <= 2, "one to the middle at the start, one over it"


@pytest.mark.parametrize("noise", [0.2, 0.5, 1.0])
def test_no_noise_moves_a_worker_twice_in_a_dwell(noise: float) -> None:
    draw, dwell = random.Random(5), 30
    loads = [
        {policy: load * (1 + draw.uniform(-noise, noise)) for policy, load in SKEW.items()}
        for _ in range(600)
    ]
    history = moves(loads, 14, dwell)
    for worker in new(14):
        rounds = [now for now, name in history if name == worker]
        assert all(later - now >= dwell for now, later in pairwise(rounds))
    assert len(history) <= 14 * (600 / dwell + 1)


def test_queues_that_come_in_waves_move_few_workers_since_their_mean_counts() -> None:
    """Turns jump between none and twice the mean each second, around the threshold of a move."""
    draw, seconds, workers = random.Random(3), 1_800, 8
    share = (workers // 2 + (1 + HYSTERESIS) / 2) / workers
    fleet_state, raw, mean = Fleet(), list[Mapping[str, float]](), list[Mapping[str, float]]()
    for second in range(seconds):
        for name, policy, part in (("w0", "a", share), ("w1", "b", 1 - share)):
            turns = draw.choice((0, round(2_000 * part)))
            heard = heartbeat(name, policy=policy, running=turns, at_ms=1_000 * second)
            fleet_state = apply(fleet_state, heard, 1_000 * second)
        raw.append({policy: float(fleet_state.turns.get(policy, 0)) for policy in ("a", "b")})
        mean.append({policy: fleet_state.queued.get(policy, 0.0) for policy in ("a", "b")})
    dwell = 30
    assert len(moves(mean[60:], workers, dwell)) <= 0.25 * len(moves(raw[60:], workers, dwell))


def test_workers_that_are_not_settled_stay_and_fixed_ones_count() -> None:
    present = dict.fromkeys(new(4), "a")
    assert balanced(("a", "b"), present, {"b": 1}, {"b": 9.0}, ()) == present
    moved = balanced(("a", "b"), present, {"b": 2}, {"a": 3.0, "b": 3.0}, present)
    assert Counter(moved.values()) == {"a": 3, "b": 1}


def fold(*records: Record) -> State:
    first = [control.claimed(), *(control.published(0, policy=policy) for policy in ("a", "b"))]
    return reduce(state.apply, [*first, *records], State.of_run(("a", "b")))


def serving(worker: str, policy: str, number: int) -> list[Record]:
    return [
        control.joined(worker, "rollout", TAGS),
        control.assigned(worker, "rollout", number, slot=number, policy=policy),
        control.acquired(worker, "rollout", number, slot=number, policy=policy),
    ]


def fleet(loads: Mapping[str, tuple[str, int]]) -> Fleet:
    """Return what heartbeats say: policy and running turns, by worker."""
    beats = [
        heartbeat(worker, "rollout", TAGS, policy=policy, running=turns, at_ms=at_ms)
        for at_ms in range(0, 60_000, 1_000)
        for worker, (policy, turns) in loads.items()
    ]
    return reduce(lambda fleet_state, heard: apply(fleet_state, heard, heard.at_ms), beats, Fleet())


def assigned(
    current: State, loads: Mapping[str, tuple[str, int]], now_ms: int
) -> list[r.RoleAssigned]:
    written = decide(View(current, fleet(loads)), rules_for(SETTINGS), now_ms)
    return [record for _, record in written if isinstance(record, r.RoleAssigned)]


def test_queued_turns_are_a_mean_over_the_waves_in_which_agents_ask() -> None:
    fleet_state = Fleet()
    for at_ms in range(0, 300_000, 1_000):
        busy = "a" if at_ms % 8_000 < 4_000 else "b"
        for worker, policy in (("w0", "a"), ("w1", "b")):
            turns = 20 if policy == busy else 0
            heard = heartbeat(worker, policy=policy, running=turns, at_ms=at_ms)
            fleet_state = apply(fleet_state, heard, at_ms)
    assert fleet_state.queued == {"a": pytest.approx(10, abs=1), "b": pytest.approx(10, abs=1)}
    moved = apply(fleet_state, heartbeat("w1", policy="a", at_ms=300_000), 300_000)
    assert moved.turns == {"a": fleet_state.turns["a"], "b": 0}


def test_new_shared_workers_are_spread_over_the_policies() -> None:
    joined = fold(*(control.joined(name, "rollout", TAGS) for name in ("w0", "w1")))
    assignments = assigned(joined, {"w0": ("a", 0), "w1": ("a", 0)}, 0)
    assert [
        (assignment.worker, assignment.policy, assignment.slot) for assignment in assignments
    ] == [
        ("w0", "a", 0),
        ("w1", "b", 1),
    ]


def test_a_worker_moves_to_the_policy_whose_turns_queue_after_it_has_served_a_while() -> None:
    current = fold(*serving("w0", "a", 0), *serving("w1", "a", 1), *serving("w2", "b", 2))
    loads = {"w0": ("a", 1), "w1": ("a", 1), "w2": ("b", 40)}
    assert not assigned(current, loads, 5_000)

    (assignment,) = assigned(current, loads, 59_000)
    assert (assignment.worker, assignment.role, assignment.policy, assignment.slot) == (
        "w0",
        "rollout",
        "b",
        3,
    )
    assert not assigned(state.apply(current, assignment), loads, 59_000), "it is on its way"


def test_a_shared_worker_is_told_the_turns_that_it_was_moved_for() -> None:
    current = fold(*serving("w0", "a", 0), *serving("w1", "a", 1), *serving("w2", "b", 2))
    (assignment,) = assigned(current, {"w0": ("a", 1), "w1": ("a", 1), "w2": ("b", 40)}, 59_000)

    assert assignment.reason.startswith("serves b, which has ")
    assert assignment.reason.endswith(" queued turns")
    figures = assignment.figures
    assert figures["workers"] == 2, "w2, and the one that comes"
    assert figures["queued_turns"] / figures["all_queued_turns"] == pytest.approx(40 / 42)
    assert figures["proportional_workers"] == pytest.approx(3 * 40 / 42)
