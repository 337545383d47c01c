"""Workers and work of a run as a rehearsal has them, for a simulation of the same file."""

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.reports.simulated_workers import modelled_as, with_own_work, without_room_of_own
from seamlessflow.schemas.records import Record
from tests.builders.records import control


@pytest.mark.parametrize(
    ("model", "notice"), [("Qwen3-32B", "has no room on a gang of 2 devices"), ("Qwen3-8B", "")]
)
def test_a_gang_that_cannot_hold_what_it_trains_is_told(model: str, notice: str) -> None:
    config = RunConfig.model_validate(
        {
            "workers": [{"id": "w0", "devices": [0, 1], "tags": ["rollout", "train"]}],
            "device_model": {"model": model, "hardware": "H100"},
        }
    )
    steps: list[Record] = [control.started(["w0"])]

    message = without_room_of_own(config, steps)
    assert notice in message
    assert bool(message) is bool(notice)


def test_lengths_and_rows_of_a_rehearsal_are_simulated_too() -> None:
    config = with_own_work(
        RunConfig.model_validate(
            {
                "rollout": {
                    "engine": "clock",
                    "capacity": 8,
                    "clock": {"turn_tokens": 60, "spread": 0.3},
                },
                "simulation": {"workload": {"turns": 2, "spread": 0.1}},
            }
        )
    )
    workload = config.simulation.workload
    assert (workload.turns, workload.turn_tokens, workload.spread) == (2, 60, 0.1)
    assert config.simulation.rows == 8
    assert "rollout.clock for lengths that it does not give" in modelled_as(
        config, config.simulation
    )


def test_without_the_clock_the_workload_is_that_of_the_simulation() -> None:
    values = {"rollout": {"clock": {"turn_tokens": 60}, "capacity": 12}}
    config = with_own_work(RunConfig.model_validate(values))
    assert config.simulation.workload == RunConfig().simulation.workload
    assert config.simulation.rows == 12
    assert "(defaults of simulation.workload)" in modelled_as(config, config.simulation)
