"""Splits, drift and goals of the benchmark `pipelines`, and the list of benchmarks."""

from dataclasses import replace

from benchmarks.__main__ import modules
from benchmarks.scheduling.cells import (
    LOADS,
    MULTIPLEXED,
    ONE_STEP_OFF,
    SYNCHRONOUS,
    Cell,
    Measured,
    Pipeline,
    dropped_later,
    measured,
)
from benchmarks.scheduling.splits import Compared, shortest
from benchmarks.scheduling.verdicts import judged, table, verdicts


def test_benchmarks_are_found_in_both_folders() -> None:
    known = modules()

    assert known["gateway"] == "benchmarks.gateway"
    assert known["pipelines"] == "benchmarks.scheduling.pipelines"
    assert "cells" not in known


def test_the_best_split_is_found_from_the_middle() -> None:
    asked: list[int] = []

    def step_s(train: int) -> float:
        asked.append(train)
        return abs(train - 5.2)

    assert shortest(step_s, 8, 7) == 5
    assert set(asked) <= set(range(1, 8))
    assert shortest(lambda train: train, 8, 7) == 1
    assert shortest(lambda train: -train, 128, 128) == 128


def test_a_drift_begins_without_a_dropped_group_and_ends_with_half_of_them() -> None:
    dropped = dropped_later(trained=3_000)

    assert sum(dropped(f"run-{number}") for number in range(20)) == 0
    late = sum(dropped(f"run-{number}") for number in range(4_000, 6_000))
    assert 0.45 < late / 2_000 < 0.55


def test_a_cell_is_simulated() -> None:
    load = replace(LOADS[0], groups=1, rows=4)
    found = measured(Cell(MULTIPLEXED, load, nodes=2, train=1, steps=4))

    assert found.step_s >= 0.99 * found.ideal_s > 0
    assert 0 < found.idle < 1


def figures(pipeline: Pipeline, step_s: float, train: int) -> Measured:
    cell = Cell(pipeline, LOADS[0], 8, train, 12)
    return Measured(cell, step_s, 96.0, 0.1, 0.05, 0.05, 0.01, 1.0, 10.0)


def test_goals_compare_each_pipeline_at_its_split() -> None:
    half = figures(MULTIPLEXED, 100.0, 4)
    found = [
        Compared(figures(SYNCHRONOUS, 175.0, 4), figures(SYNCHRONOUS, 160.0, 3)),
        Compared(figures(ONE_STEP_OFF, 150.0, 4), figures(ONE_STEP_OFF, 98.0, 2)),
        Compared(half, half),
    ]
    ideal, beside, synchronous = verdicts(found, 64)

    assert (round(ideal.measured, 3), ideal.met) == (1.042, True)
    assert (round(beside.measured, 3), beside.met) == (1.02, True)
    assert (synchronous.measured, synchronous.met) == (1.75, False)
    assert "| at least 1.80 | 1.75 | not met |" in judged([synchronous])
    rows = table(found, "math").splitlines()
    assert len(rows) == 4 + 5
    assert len({row.count("|") for row in rows[2:]}) == 1
