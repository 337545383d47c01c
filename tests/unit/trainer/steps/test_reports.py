"""Reports: metrics in files, reasons for a lack of learning, alarms of a mismatch."""

import json
import sys
from collections.abc import Sequence
from csv import DictReader
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.records import EvaluationCompleted, ProgressStalled
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.metrics.sinks import CsvFile, Gauges, open_sinks
from seamlessflow.trainer.metrics.trackers import SinkUnavailable
from seamlessflow.trainer.settings import OptimizerSection, TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.inputs import learning_rate
from seamlessflow.trainer.steps.one_step import StepDone, StepOrder
from seamlessflow.trainer.steps.reports import ENGINE, LEARNING, Reports
from tests.builders.trainer.groups import session, two_groups
from tests.builders.trainer.metric_names import is_listed


def spelt(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


EQUAL = {"filtered/zero_variance": 1.0, "reward_mean": 0.0, "tokens_trained": 0.0}


def done(step: int, metrics: dict[str, float]) -> StepDone:
    order = StepOrder(
        batch=Batch(step, ()),
        facts={},
        version=step,
        next_version=step + 1,
        lineage="a",
        parent_lineage="",
        trained_before=3,
        consumed=(),
        started_ms=0,
    )
    return StepDone(order, metrics, 100 + step)


def reports(**settings: object) -> Reports:
    return Reports(TrainerSection(explain_after=3, **settings), [])


def alarms(reporter: Reports, *steps: dict[str, float]) -> list[ProgressStalled]:
    return [
        record
        for step, metrics in enumerate(steps)
        for record in reporter.report_step(done(step, metrics))
    ]


def test_equal_rewards_are_named_as_the_reason() -> None:
    (record,) = alarms(reports(), EQUAL, EQUAL, EQUAL)
    assert (record.what, record.since_ms) == (LEARNING, 100)
    assert "100% of all groups had equal rewards (mean 0.00)" in record.detail


def test_one_step_with_a_gradient_is_learning() -> None:
    assert alarms(reports(), EQUAL, {"grad_norm": 0.1}, EQUAL, EQUAL) == []


def test_the_reasons_are_reported_once_in_a_while_and_not_each_step() -> None:
    assert len(alarms(reports(), *[EQUAL] * 7)) == 2


def test_an_engine_that_disagrees_is_reported_once_until_it_agrees_again() -> None:
    wrong, right = (
        {"mismatch_mean": 0.2, "grad_norm": 1.0},
        {"mismatch_mean": 0.0, "grad_norm": 1.0},
    )
    notices = alarms(reports(), right, wrong, wrong, right, wrong)
    assert [record.what for record in notices] == [ENGINE, ENGINE]


@pytest.mark.parametrize(
    ("advantage", "group_size", "warned"),
    [("grpo", 1, 1), ("rloo", 1, 1), ("grpo", 2, 0), ("reinforce_pp", 1, 0)],
)
def test_groups_of_one_session_are_reported_once_where_sessions_are_compared(
    advantage: str, group_size: int, warned: int
) -> None:
    reporter = reports(advantage=advantage)
    alone = session("a.0.0", 1.0)
    asked = replace(alone, source=replace(alone.source, group_size=group_size))
    batch = Batch(0, (Prepared(Group("a", (asked,)), ()),))
    learned = done(0, {"grad_norm": 1.0})
    step = replace(learned, order=replace(learned.order, batch=batch))
    notices = [*reporter.report_step(step), *reporter.report_step(step)]
    assert [record.what for record in notices] == [LEARNING] * warned
    assert all("group_id, each with its sample" in record.detail for record in notices)


def test_metrics_are_a_row_a_step_also_after_a_restart(tmp_path: Path) -> None:
    for step in range(2):
        sink = CsvFile(tmp_path / "out" / "metrics.csv")
        sink.write(step, step + 1, 5, {"loss": 0.25, "masked/stale": 3.0})
        sink.close()
    header, first, second = (tmp_path / "out" / "metrics.csv").read_text().splitlines()
    assert header.startswith("step,version,at_ms,reward_mean")
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert (row["step"], row["loss"], row["more"]) == ("0", "0.25", "masked/stale=3")
    assert second.startswith("1,2,5")


@pytest.mark.parametrize(("every", "written"), [(2, [1, 3, 5]), (0, [])])
def test_sample_texts_are_written_every_few_steps(
    tmp_path: Path, every: int, written: list[int]
) -> None:
    reporter = Reports(
        TrainerSection(samples_every=every), [CsvFile(tmp_path / "metrics.csv")], spelt
    )
    for step in range(5):
        finished = done(step, {"loss": 0.25})
        groups = Batch(step, two_groups())
        reporter.report_step(replace(finished, order=replace(finished.order, batch=groups)))
    reporter.close()
    file = tmp_path / "samples.jsonl"
    rows = file.read_text().splitlines() if file.exists() else []
    assert sorted({json.loads(row)["step"] for row in rows}) == written


def evaluated(version: int, mean: float | None, split: str = "test") -> EvaluationCompleted:
    return EvaluationCompleted(
        at_ms=9, version=version, step=version, split=split, groups=1, sessions=2, reward_mean=mean
    )


def test_each_round_of_an_evaluation_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    reporter = Reports(TrainerSection(), [CsvFile(file)])
    reporter.report_step(done(7, {"loss": 0.25}))
    for evaluation in (evaluated(6, 0.5), evaluated(7, 0.75), evaluated(8, None)):
        reporter.report_evaluation(evaluation)
    reporter.close()
    with file.open() as rows:
        figures = [
            (row["step"], row["version"], row["eval_reward_mean"]) for row in DictReader(rows)
        ]
    assert figures == [("8", "8", ""), ("6", "6", "0.5"), ("7", "7", "0.75")]


def test_rows_of_several_sets_have_their_names_in_every_sink(tmp_path: Path) -> None:
    file, metrics = tmp_path / "metrics.csv", Metrics()
    reporter = Reports(TrainerSection(), [CsvFile(file), Gauges(metrics)])
    reporter.report_step(done(7, {"loss": 0.25}))
    evaluation = replace(
        evaluated(7, 0.75, "hard"),
        reward_error=0.125,
        pass_at={"1": 0.5, "2": 0.75},
        pass_all={"2": 0.25},
        pass_all_high={"2": 0.5},
        turns=2.5,
        prompt_tokens=0.0,
    )
    reporter.report_evaluation(evaluated(7, 0.5, "easy"), named=True)
    reporter.report_evaluation(evaluation, named=True)
    reporter.close()
    with file.open() as rows:
        (_, easy, hard) = DictReader(rows)
    assert easy["more"].split() == [
        "eval_reward_mean/easy=0.5",
        "eval_sessions/easy=2",
        "eval_version/easy=7",
    ]
    names = [entry.partition("=")[0] for entry in hard["more"].split()]
    assert {"eval_reward_error/hard", "eval_pass_at/2/hard"} <= {*names}
    assert {"eval_pass_all/2/hard", "eval_pass_all_high/2/hard"} <= {*names}
    assert {"eval_turns/hard", "eval_prompt_tokens/hard"} <= {*names}
    assert "eval_sampled_tokens/hard" not in names
    assert all(is_listed(name) for name in names)
    shown = metrics.text().decode()
    assert 'metric="eval_reward_mean/easy"} 0.5' in shown
    assert 'metric="eval_reward_mean/hard"} 0.75' in shown
    assert "seamlessflow_trainer_steps 8.0" in shown


@pytest.mark.parametrize(
    ("section", "package"),
    [
        (TrainerSection(wandb_project="p"), "wandb"),
        (TrainerSection(mlflow_uri="http://127.0.0.1:5000"), "mlflow-skinny$"),
        (TrainerSection(mlflow_uri="sqlite:///runs.db"), "mlflow$"),
    ],
)
def test_a_sink_without_its_library_names_what_to_install(
    tmp_path: Path, section: TrainerSection, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    settings = TrainerSettings(data_dir=tmp_path, trainer=section)
    with pytest.raises(SinkUnavailable, match=f"pip install {package}"):
        open_sinks(settings, Metrics())


@pytest.mark.parametrize("name", ["loss", "masked/stale", "filtered/zero_variance"])
def test_metric_names_are_on_the_list(name: str) -> None:
    assert is_listed(name)
    assert not is_listed(f"no-such-{name}")


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.7, 0.4]),
        ("cosine", [0.5, 1.0, 1.0, 0.775, 0.325]),
    ],
)
def test_the_learning_rate_warms_up_and_falls(schedule: str, expected: list[float]) -> None:
    settings = OptimizerSection(lr=1.0, min_lr=0.1, warmup_steps=2, schedule=schedule)
    assert [learning_rate(settings, step, 5) for step in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 3, 100])
@pytest.mark.parametrize("warmup", [0, 1, 99])
def test_every_step_of_a_run_has_a_rate_and_only_what_comes_behind_it_has_none(
    schedule: str, steps: int, warmup: int
) -> None:
    settings = OptimizerSection(lr=1.0, warmup_steps=warmup, schedule=schedule)
    rates = [learning_rate(settings, step, steps) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    if warmup < steps:
        assert learning_rate(settings, steps, steps) == pytest.approx(0, abs=1e-15)
