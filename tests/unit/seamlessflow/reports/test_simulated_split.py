"""Gangs that a plan simulates, and their steps."""

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.reports.simulated_split import ordered, split, steps_each, tried_gangs


def configured(groups: int) -> RunConfig:
    lots = [
        {"count": 61, "tags": ["rollout"], "devices": 8, "hardware": "H20"},
        {"count": 3, "tags": ["rollout", "train"], "devices": 8},
    ]
    run = {"groups_per_step": groups, "group_size": 8}
    return parse({"run": run, "simulation": {"workers": lots}})


@pytest.mark.parametrize(
    ("groups", "gangs", "steps"),
    [
        # All of the faster kind are a gang of their own, and the others are spread evenly.
        (8, [24, 64, 128, 192, 256, 320, 384, 448, 512], 20),
        (200, [24, 512], 8),
        (1000, [], 8),
    ],
)
def test_the_more_turns_a_step_has_the_fewer_gangs_and_steps_are_simulated(
    groups: int, gangs: list[int], steps: int
) -> None:
    config = configured(groups)

    assert tried_gangs(config) == gangs
    assert steps_each(config, 15) == steps


def test_a_gang_takes_the_devices_that_train_fastest_first() -> None:
    workers = split(ordered(configured(8)), "multiplexed", 20)

    trains = [worker.hardware for worker in workers if "train" in worker.tags]
    assert trains == [None, None, None], "H100, in whole workers"
