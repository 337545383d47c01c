"""The picture of a run's rewards."""

from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.reports.charts import plot_rewards
from seamlessflow.reports.reward_curve import StepFacts
from tests.builders.records.control import evaluated

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
    plot_rewards(steps(count), (0.1, 0.9), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)


def test_each_evaluation_set_has_a_curve(tmp_path: Path) -> None:
    evaluation = evaluated(0, "set-0", 0.25)
    rounds = {
        f"set-{n}": [evaluation, replace(evaluation, step=4, reward_mean=0.75)] for n in range(8)
    }
    pictures = [tmp_path / name for name in ("none.png", "eight.png")]
    for path, evaluations in zip(pictures, ({}, rounds), strict=True):
        plot_rewards(steps(4), (None, None), evaluations, path)
    none, eight = (path.read_bytes() for path in pictures)
    assert eight.startswith(PNG)
    assert eight != none


def test_what_is_not_known_is_not_drawn(tmp_path: Path) -> None:
    unknown = StepFacts(step=2, version=3, rewards=(None,))
    plot_rewards([*steps(2), unknown], (None, None), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)


def test_rewards_may_be_of_any_size(tmp_path: Path) -> None:
    far = [StepFacts(step=0, version=1, rewards=(-40.0, 250.0))]
    plot_rewards(far, (-100.0, None), {}, tmp_path / "reward.png")

    assert (tmp_path / "reward.png").read_bytes().startswith(PNG)
