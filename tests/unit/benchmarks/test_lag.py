"""Imposed ages of the benchmark `lag`, their results and the reading of them."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load.aged import SETTLED_MS, aged
from benchmarks.scheduling.ages import RESULT, AgedResult, AgedRun, read, result
from benchmarks.scheduling.reward_curves import draw, reading
from seamlessflow.scheduler.decisions.snapshot import Snapshot, WorkerView

ROLLS = frozenset({"rollout"})
TRAINS = frozenset({"train"})
WORKERS = (
    WorkerView(name="a", tags=ROLLS, able=ROLLS, role="rollout", acquired_ms=0),
    WorkerView(name="b", tags=TRAINS, able=TRAINS, role="train", acquired_ms=0),
)


def trains(running: int, now_ms: int = 10_000, under_way: bool = False) -> bool:
    seen = Snapshot(
        now_ms=now_ms,
        workers=WORKERS,
        batch=True,
        running=running,
        under_way=under_way,
        gang=frozenset({"b"}),
        ended_ms=9_000,
    )
    return any(want.role == "train" for want in aged(seen))


def test_a_batch_waits_until_no_group_is_under_way() -> None:
    assert not trains(running=1)
    assert trains(running=0)
    assert trains(running=1, under_way=True)


def test_a_batch_waits_for_the_groups_that_the_last_step_made_room_for() -> None:
    assert not trains(running=0, now_ms=9_000 + SETTLED_MS - 1)


def of(age: int, loss: str, seed: int, rewards: Sequence[float]) -> AgedResult:
    return AgedResult(AgedRun(age, loss, seed, len(rewards)), age * 0.9, tuple(rewards), 1.0)


def test_the_measured_age_counts_from_the_step_on_at_which_it_can_be_reached(
    tmp_path: Path,
) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text("step,reward_mean,staleness_mean\n0,0.1,0.0\n1,,\n2,0.2,1.0\n3,0.3,0.8\n")

    found = read(AgedRun(1, "tis", 0, 4), table, 2.0)

    assert found.rewards == (0.1, 0.2, 0.3)
    assert found.measured_age == 0.9


def test_a_run_that_has_a_result_is_not_made_again(tmp_path: Path) -> None:
    run = AgedRun(2, "tis", 1, 3)
    (tmp_path / run.name).mkdir()
    stored = {"measured_age": 1.5, "rewards": [0.5], "took_s": 3.0}
    (tmp_path / run.name / RESULT).write_text(json.dumps(stored))

    assert result(run, tmp_path) == AgedResult(run, 1.5, (0.5,), 3.0)


def test_the_reading_names_the_first_age_that_costs(tmp_path: Path) -> None:
    found = [
        of(age, loss, seed, [0.1, 0.2, 0.3, end + 0.01 * seed])
        for seed in range(2)
        for age, loss, end in ((0, "tis", 0.8), (2, "tis", 0.9), (0, "ppo", 0.8), (2, "ppo", 0.4))
    ]
    text = reading(found).lower()

    assert "0.81 at 0.0 steps, 0.41 at 1.8 steps with ppo" in text
    assert "with ppo every seed at 1.8 steps ends below every one at 0.0" in text
    assert "with tis the seeds of no age lie all below those of the youngest" in text
    draw(found, tmp_path / "lag.svg")
    assert (tmp_path / "lag.svg").stat().st_size > 0
