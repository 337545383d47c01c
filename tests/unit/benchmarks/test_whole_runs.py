"""The benchmark `whole_runs`: its configurations, and the figures that it reads."""

from pathlib import Path

import pytest

from benchmarks.learning.whole_runs import RUNS, TEACHING, configuration, evaluations
from benchmarks.trail.configuration import write_run
from seamlessflow.config import RunConfig
from seamlessflow.config_file import load, parse

STEPS = 7


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "data-seed0").mkdir()  # stands for a prepared model, which takes half a minute
    return tmp_path


def configured(name: str, out: Path) -> RunConfig:
    return parse(configuration(name, STEPS, 0, out))


@pytest.mark.parametrize("name", RUNS)
def test_runs_differ_in_what_their_settings_name_alone(name: str, out: Path) -> None:
    one, first = configured(name, out), configured(TEACHING, out)
    assert (one.policy, one.run, one.pacing, one.evaluation) == (
        first.policy,
        first.run,
        first.pacing,
        first.evaluation,
    )
    assert one.trainer.optimizer == first.trainer.optimizer
    assert one.evaluation.every == one.run.steps == STEPS
    assert one.out == out / name


def test_the_teacher_is_the_policy_that_turn_level_credit_made(out: Path) -> None:
    trainer = configured("distillation", out).trainer
    assert trainer.advantage == "distill"
    assert trainer.teacher == configured(TEACHING, out).out / "weights" / "final"


def test_a_configuration_is_written_beside_the_directory_of_its_run(out: Path) -> None:
    values = configuration("mini-batches", STEPS, 0, out)
    file = write_run(values)
    assert file == out / "mini-batches.yaml"
    assert load(file).trainer.updates == 4


def test_evaluations_are_the_rows_of_the_metrics_that_have_one(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("step,reward_mean,eval_reward_mean\n0,,0.25\n0,0.3,\n1,0.4,\n2,,0.75\n")
    assert evaluations(file) == [0.25, 0.75]
