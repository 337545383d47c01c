"""Sentences about steps that were executed again."""

import pytest

from seamlessflow.recorded.retrain.recorded_run import RecordedStep
from seamlessflow.recorded.retrain.reexecution import RepeatedStep
from seamlessflow.recorded.retrain.view import outcome_lines
from seamlessflow.trainer.recovery.control_state import Commit


def repeated(loss: float, tensors_hash: str = "other", step: int = 3) -> RepeatedStep:
    commit = Commit(step, step + 1, "a", {})
    recorded = RecordedStep(step, commit, step, "a", "recorded", {"loss": 0.5})
    return RepeatedStep(recorded, tensors_hash, {"loss": loss})


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        (0.5, "differ by rounding alone"),
        (0.50001, "differ by rounding alone"),
        (0.52, "more than rounding"),
    ],
)
def test_a_step_that_differs_says_why_it_may(loss: float, shown: str) -> None:
    lines = outcome_lines([repeated(0.5, "recorded", 2), repeated(loss)], ablation=False)
    assert lines[0] == "executed 2 steps: 1 equal"
    assert lines[1] == "the first that differs is step 4"
    assert shown in lines[-1] and "--step 4 --tensors FILE" in lines[-1]


def test_equal_steps_need_no_reason() -> None:
    assert outcome_lines([repeated(0.5, "recorded")], ablation=False) == [
        "executed 1 steps: 1 equal"
    ]
