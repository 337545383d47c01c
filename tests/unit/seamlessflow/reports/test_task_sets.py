"""Rewards of task sets: rounds of evaluations, and sources of the steps' groups."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console

from seamlessflow.reports.outcome import RunOutcome
from seamlessflow.reports.outcome_view import outcome_view
from seamlessflow.reports.reward_curve import evaluation_curves
from seamlessflow.reports.summary import LauncherFacts, summary
from seamlessflow.schemas.records import EvaluationCompleted, Record
from tests.builders.records import control
from tests.builders.records.control import evaluated


def rewards(rounds: Sequence[EvaluationCompleted]) -> list[tuple[int, float | None]]:
    return [(evaluation.step, evaluation.reward_mean) for evaluation in rounds]


def test_a_curve_has_a_round_for_each_number_of_steps_and_the_newest_counts() -> None:
    log = [
        evaluated(0, "hard", 0.25),
        evaluated(8, "hard", 0.75),
        evaluated(4, "hard", 0.5),
        evaluated(4, "hard", 0.625, version=9),
        evaluated(4, "easy", 1.0),
        evaluated(8, "easy", None),
    ]
    curves = {name: rewards(rounds) for name, rounds in evaluation_curves(log).items()}
    assert curves == {"easy": [(4, 1.0)], "hard": [(0, 0.25), (4, 0.625), (8, 0.75)]}


def test_the_summary_has_the_rounds_of_each_set() -> None:
    chances = {"pass_at": {"1": 0.5, "2": 2 / 3}, "pass_all": {"2": 1 / 3}}
    evaluation = evaluated(4, "hard", 0.5, reward_error=0.125, **chances, turns=1.5)
    report = summary([evaluation], {}, LauncherFacts(), None)
    assert report["evaluations"] == {
        "hard": [
            {
                "step": 4,
                "version": 4,
                "reward_mean": 0.5,
                "reward_error": 0.125,
                "sessions": 2,
                "pass_at": {"1": 0.5, "2": 0.666667},
                "pass_all": {"2": 0.333333},
                "turns": 1.5,
            }
        ]
    }


def steps(*metrics: dict[str, float]) -> list[Record]:
    """Return the records of steps with these metrics."""
    records: list[Record] = []
    for step, figures in enumerate(metrics):
        records += [control.committed(step), control.completed(step, metrics=figures)]
    return records


def metrics_from(source: str, groups: int, reward: float) -> dict[str, float]:
    return {f"groups_from/{source}": groups, f"reward_from/{source}": reward}


def test_the_summary_has_the_rewards_of_each_source_by_its_groups() -> None:
    log = steps(
        metrics_from("math", 3, 0.0) | metrics_from("code", 1, 1.0),
        *[metrics_from("math", 4, 0.5)] * 10,
        metrics_from("math", 1, 1.0) | metrics_from("code", 3, 0.0),
    )
    report = summary(log, {}, LauncherFacts(), None)
    assert report["sources"] == {
        "code": {"groups": 4, "reward_first10": 1.0, "reward_last10": 0.0},
        "math": {"groups": 44, "reward_first10": 0.434783, "reward_last10": 0.52381},
    }
    assert summary(steps(metrics_from("train", 3, 0.5)), {}, LauncherFacts(), None)["sources"] == {}


def test_the_report_has_a_line_for_each_set_and_source(tmp_path: Path) -> None:
    log = [
        *steps(metrics_from("math", 3, 0.25) | metrics_from("code", 1, 1.0)),
        evaluated(0, "hard", 0.25),
        evaluated(
            4, "hard", 0.5, reward_error=0.125, pass_at={"1": 0.5, "2": 0.75}, pass_all={"2": 0.25}
        ),
        evaluated(0, "easy", 1.0),
    ]
    report = {**summary(log, {}, LauncherFacts(), None), "train_wall_s": 1.0}
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(outcome_view(RunOutcome(tmp_path, report, None)))
    shown = " ".join(captured.get().split())
    assert "evaluated on easy 1.000 (one round)" in shown
    rounds = "0.250 → 0.500 ± 0.125 (first and last of 2 rounds), pass@2 0.750, pass^2 0.250"
    assert f"evaluated on hard {rounds}" in shown
    assert "reward of math 0.250 → ? (first and last step), 3 groups" in shown
