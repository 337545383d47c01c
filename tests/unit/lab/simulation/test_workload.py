"""Lengths of simulated sessions that change over a run."""

import pytest
from pydantic import ValidationError

from seamlessflow.lab.simulation.workload import Workload, WorkloadSection


def lengths(section: WorkloadSection, groups: int) -> list[int]:
    drawn = Workload(section)
    return [drawn.draw(f"run-{number}", 0, 0).turns[0][1] for number in range(groups)]


def test_lengths_flip_from_lot_to_lot() -> None:
    section = WorkloadSection(turn_tokens=100, spread=0, swing=3, swing_groups=2)

    assert lengths(section, 6) == [100, 100, 300, 300, 100, 100]


def test_lengths_drift_by_equal_factors_and_then_stay() -> None:
    section = WorkloadSection(turn_tokens=100, spread=0, drift=4, drift_groups=2)

    assert lengths(section, 4) == [100, 200, 400, 400]


@pytest.mark.parametrize("name", ["spread", "turns_spread", "tool_spread"])
def test_a_spread_without_sense_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 6"):
        WorkloadSection.model_validate({name: 6.5})
