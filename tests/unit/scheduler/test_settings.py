"""Settings of the scheduler: sizes of groups that fit together."""

from typing import Any

import pytest

from seamlessflow.scheduler.settings import PacingSection, RunSection


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        ({}, 2),
        ({"group_size": 1}, 2),
        ({"group_size": 2}, 2),
        ({"group_size": 16}, 2),
        ({"group_size": 4, "min_group_size": 4}, 4),
        ({"group_size": 4, "min_group_size": 1}, 1),
    ],
)
def test_a_least_size_that_was_not_set_fits_each_size(sizes: dict[str, Any], least: int) -> None:
    run = RunSection(**sizes)
    assert run.least_samples == least
    assert RunSection.model_validate(run.model_dump()) == run, "as a process gets it"


@pytest.mark.parametrize("sizes", [(1, 2), (4, 5)])
def test_a_least_size_above_the_size_is_refused(sizes: tuple[int, int]) -> None:
    size, least = sizes
    with pytest.raises(ValueError, match=f"must not exceed run.group_size, which is {size}"):
        RunSection(group_size=size, min_group_size=least)


def test_a_prediction_without_forks_is_refused() -> None:
    with pytest.raises(ValueError, match="only forks_live reads forks_predict"):
        PacingSection(forks_predict="mine:chance")


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_not_all_samples_can_go_on_from_others(share: float) -> None:
    with pytest.raises(ValueError, match="forks_live"):
        PacingSection(forks_live=share)
