"""The picture of a run's rewards."""

from pathlib import Path

import pytest

from seamlessflow.reports.reward_chart import plot
from seamlessflow.reports.reward_curve import StepFacts

PNG = b"\x89PNG\r\n\x1a\n"


def steps(count: int) -> list[StepFacts]:
    return [
        StepFacts(
            step=number,
            version=number + 1,
            rewards=(number / count, 1.0),
            metrics={"staleness_max": 1.0, "staleness_mean": 0.5, "tokens_trained": 10.0},
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 400])
def test_a_run_of_any_length_has_a_picture(count: int, tmp_path: Path) -> None:
    plot(steps(count), (0.1, 0.9), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)


def test_what_is_not_known_is_not_drawn(tmp_path: Path) -> None:
    unknown = StepFacts(step=2, version=3, rewards=(None,))
    plot([*steps(2), unknown], (None, None), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)


def test_rewards_may_be_of_any_size(tmp_path: Path) -> None:
    far = [StepFacts(step=0, version=1, rewards=(-40.0, 250.0))]
    plot(far, (-100.0, None), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)
