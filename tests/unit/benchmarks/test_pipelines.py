"""Splits, drift and goals of the benchmark `pipelines`, and the list of benchmarks."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import modules
from benchmarks.scheduling.cells import (
    LOADS,
    MULTIPLEXED,
    ONE_STEP_OFF,
    PIPELINES,
    SYNCHRONOUS,
    Cell,
    Measured,
    Pipeline,
    dropped_later,
    measured,
)
from benchmarks.scheduling.pipelines import judged, table, verdicts
from benchmarks.scheduling.rehearsals import configuration
from benchmarks.scheduling.splits import Compared, shortest
from seamlessflow.checks.check import before_training
from seamlessflow.config_file import parse
from seamlessflow.demo.model import make_model
from seamlessflow.rehearsal.rehearsal import rehearsal_of


def test_benchmarks_are_found_in_both_folders() -> None:
    names = modules()

    assert names["gateway"] == "benchmarks.gateway"
    assert names["pipelines"] == "benchmarks.scheduling.pipelines"
    assert "cells" not in names


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rehearsals")
    make_model(directory / "model", seed=0)
    (directory / "tasks.jsonl").write_text('{"id": "1"}\n')
    return directory


@pytest.mark.parametrize("devices", [8, 32])
@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
def test_each_rehearsal_has_a_configuration_of_a_run(
    devices: int, pipeline: Pipeline, folder: Path
) -> None:
    written = configuration(folder / f"{devices}-devices", pipeline)
    config = parse(written, check=lambda settings: before_training(rehearsal_of(settings)))

    assert sum(len(worker.devices) for worker in config.workers) == devices


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
    measurement = measured(Cell(MULTIPLEXED, load, nodes=2, train=1, steps=4))

    assert measurement.step_s >= 0.99 * measurement.ideal_s > 0
    assert 0 < measurement.idle < 1


def figures(pipeline: Pipeline, step_s: float, train: int) -> Measured:
    cell = Cell(pipeline, LOADS[0], 8, train, 12)
    return Measured(cell, step_s, 96.0, 0.1, 0.05, 0.05, 0.01, 1.0, 10.0)


def test_goals_compare_each_pipeline_at_its_split() -> None:
    half = figures(MULTIPLEXED, 100.0, 4)
    comparisons = [
        Compared(figures(SYNCHRONOUS, 175.0, 4), figures(SYNCHRONOUS, 160.0, 3)),
        Compared(figures(ONE_STEP_OFF, 150.0, 4), figures(ONE_STEP_OFF, 98.0, 2)),
        Compared(half, half),
    ]
    ideal, beside, synchronous = verdicts(comparisons, 64)

    assert (round(ideal.measured, 3), ideal.met) == (1.042, True)
    assert (round(beside.measured, 3), beside.met) == (1.02, True)
    assert (synchronous.measured, synchronous.met) == (1.75, False)
    assert "| at least 1.80 | 1.75 | not met |" in judged([synchronous])
    rows = table(comparisons, "math").splitlines()
    assert len(rows) == 4 + 5
    assert len({row.count("|") for row in rows[2:]}) == 1
