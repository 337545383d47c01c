"""Gangs chosen by the predicted step: `bidirectional` and `adaptive`."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from seamlessflow.scheduler.decisions.snapshot import MeanCosts, Snapshot, WorkerView
from seamlessflow.scheduler.decisions.speeds import learned_speeds
from seamlessflow.scheduler.decisions.strategies.built_in import adaptive, bidirectional
from seamlessflow.scheduler.decisions.strategies.wanted import Strategy
from seamlessflow.scheduler.state.rates import GangSpeed, LearnedRates

TAGS = frozenset({"rollout", "train"})
FAST, SLOW = {"train": 900.0, "rollout": 50.0}, {"train": 150.0, "rollout": 60.0}


def workers(fast: int, slow: int) -> tuple[WorkerView, ...]:
    kinds = [(f"f{n}", FAST) for n in range(fast)] + [(f"s{n}", SLOW) for n in range(slow)]
    return tuple(
        WorkerView(
            name=name,
            tags=TAGS,
            able=TAGS,
            role="rollout",
            acquired_ms=0,
            modelled=modelled,
            ratio=modelled["train"] / modelled["rollout"],
        )
        for name, modelled in kinds
    )


def rates(
    *gangs: tuple[Sequence[str], float], batch: int = 1000, step: float = 100
) -> LearnedRates:
    return LearnedRates(
        sampled={"f0": 1.0, "s0": 1.0},
        gangs=tuple(GangSpeed(tuple(members), speed) for members, speed in gangs),
        batch_tokens=batch,
        step_tokens=step,
    )


NOW = Snapshot(
    now_ms=1000, workers=workers(2, 4), batch=True, gang_size=1, rates=rates((["f0"], 1.0))
)
COSTS = MeanCosts(train=1000, rollout=3000, to_train=10, to_rollout=10)


def gang(strategy: Strategy, snapshot: Snapshot) -> set[str]:
    return {want.worker for want in strategy(snapshot) if want.role == "train"}


def test_a_gang_without_slow_devices_trains_sooner() -> None:
    assert gang(adaptive, NOW) == {"f0", "f1"}


def test_a_gang_is_no_larger_than_rollout_needs() -> None:
    assert gang(adaptive, replace(NOW, rates=rates((["f0"], 1.0), step=20_000))) == {"f0"}


def test_speeds_that_were_seen_count_instead_of_the_model() -> None:
    throttled = rates((["f0", "f1"], 0.02), (["s0"], 0.5))

    assert gang(adaptive, replace(NOW, rates=throttled)) == {"s0", "s1", "s2", "s3"}


def test_a_step_of_a_mixed_gang_shows_the_speed_of_its_slowest_kind() -> None:
    seen = rates((["f0", "s0"], 0.3), (["f0", "f1"], 2.0))
    modelled = {worker.name: worker.modelled for worker in NOW.workers}

    speeds = learned_speeds(modelled, dict.fromkeys(modelled, 1), seen)
    assert [speeds["s3"].train, speeds["f1"].train] == pytest.approx([0.3, 2.0])


def test_the_last_gang_trains_again_unless_another_is_clearly_better() -> None:
    equal = replace(NOW, workers=workers(4, 0), last_gang=frozenset({"f2", "f3"}))
    balanced = replace(equal, rates=rates((["f0"], 1.0), step=1300))

    assert gang(adaptive, replace(balanced, last_gang=frozenset())) == {"f0", "f1"}
    assert gang(adaptive, balanced) == {"f2", "f3"}


@pytest.mark.parametrize("strategy", [adaptive, bidirectional])
def test_a_gang_that_takes_training_for_the_batch_stays(strategy: Strategy) -> None:
    taking = tuple(
        worker._replace(role="train", acquired_ms=None) if worker.name == "s3" else worker
        for worker in NOW.workers
    )
    snapshot = replace(NOW, workers=taking, gang=frozenset({"s3"}), costs=COSTS)

    assert gang(strategy, snapshot) == {"s3"}


@pytest.mark.parametrize("strategy", [adaptive, bidirectional])
def test_no_gang_is_wanted_of_too_few(strategy: Strategy) -> None:
    assert gang(strategy, replace(NOW, gang_size=7, costs=COSTS)) == set()


def test_rollout_workers_help_a_step_until_training_is_no_longer_the_slower_side() -> None:
    six = replace(NOW, workers=workers(6, 0), costs=COSTS)

    assert len(gang(bidirectional, replace(six, costs=MeanCosts()))) == 1, "nothing was measured"
    assert len(gang(bidirectional, six)) == 2
    assert len(gang(bidirectional, replace(six, costs=replace(COSTS, rollout=6000)))) == 1


def test_rollout_workers_do_not_help_where_their_switches_cost_more() -> None:
    first, *others = workers(6, 0)
    holds = first._replace(role="train")
    seen = replace(NOW, workers=(holds, *others), gang=frozenset({"f0"}), ended_ms=500)

    cheap = replace(COSTS, rollout=4500)
    dear = replace(cheap, to_train=2000, to_rollout=2000)
    assert len(gang(bidirectional, replace(seen, costs=cheap))) == 2
    assert gang(bidirectional, replace(seen, costs=dear)) == {"f0"}


def test_where_switches_are_dear_the_gang_is_the_one_that_is_best_for_good() -> None:
    for_good = replace(COSTS, to_train=2000, to_rollout=2000)
    # Step: max(1.1 x 1000 / 2, 3000 / 4); with one or three workers it is 1100 or 1000.
    wanted = bidirectional(replace(NOW, workers=workers(6, 0), costs=for_good))

    figures = next(want.figures for want in wanted if want.role == "train")
    assert figures["devices"] == 2
    assert figures["predicted_step_ms"] == pytest.approx(750)


def test_each_choice_has_its_figures() -> None:
    figures = next(want.figures for want in adaptive(NOW) if want.role == "train")

    assert figures["devices"] == 2
    assert figures["predicted_training_ms"] == pytest.approx(500)
    assert figures["predicted_step_ms"] == pytest.approx(550)
