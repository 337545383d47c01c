"""Tasks of any form in a run configuration, prepared where its directory is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.checks.check import before_evaluation, before_training
from seamlessflow.config import RunConfig
from seamlessflow.config_file import ConfigRejected, load, no_task, parse
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.scheduler.bootstrap import task_sets
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.scheduler.tasks.file import TaskFile
from seamlessflow.scheduler.tasks.source import TaskSource
from tests.builders.run_files import changed, faults, run_values
from tests.builders.scheduler.prepared import parquet, saved_dataset

ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1), "level": n % 3} for n in range(60)]
MAP = {"prompt": "question", "answer": "answer"}


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a configuration whose tasks are in a Parquet file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    values = run_values(tmp_path)
    return changed(values, "pacing", tasks=parquet(tmp_path, ROWS), map=MAP, held_back=0.3)


def prompts(path: Path | None) -> list[str]:
    assert path is not None
    return [row.payload.decode().split('"prompt":')[1] for row in TaskFile(path)]


def evaluated(values: Mapping[str, Any], **more: object) -> Mapping[str, Any]:
    """Return the configuration with an evaluation on the same source."""
    return changed(values, "evaluation", tasks=values["pacing"]["tasks"], map=MAP, **more)


def test_training_and_evaluation_on_one_source_share_no_task(values: Mapping[str, Any]) -> None:
    config = parse(evaluated(values, held_back=0.3), check=before_training)
    trained = prompts(config.pacing.tasks)
    held_back = prompts(config.evaluation.tasks)
    assert not set(trained) & set(held_back)
    assert len(trained) + len(held_back) == len(ROWS)
    assert held_back


def test_each_source_and_set_has_a_choice_of_its_own(values: Mapping[str, Any]) -> None:
    source = values["pacing"]["tasks"]
    levels = {str(n): {"tasks": source, "map": MAP, "where": {"level": n}} for n in range(3)}
    spread = {**values, "pacing": {"sources": levels}, "evaluation": {"sets": levels}}
    config = parse(spread, check=before_training)
    trained = {name: prompts(part.tasks) for name, part in config.pacing.sources.items()}
    assert trained == {name: prompts(part.tasks) for name, part in config.evaluation.sets.items()}
    assert [len(part) for part in trained.values()] == [20, 20, 20]


def test_the_scheduler_reads_what_was_prepared(values: Mapping[str, Any]) -> None:
    config = parse(evaluated(values, held_back=0.3))
    sets = task_sets(SchedulerSettings(pacing=config.pacing, evaluation=config.evaluation))
    assert isinstance(sets.training, TaskSource)
    drawn = {sets.training.draw(number).task_id for number in range(len(ROWS))}
    assert not drawn & {row.task_id for row in sets.evaluations["test"].rows}


def test_a_scheduler_alone_refuses_what_is_not_prepared(values: Mapping[str, Any]) -> None:
    config = parse(values, read_tasks=no_task)
    with pytest.raises(SettingsRejected, match="name the file that it wrote in OUT/prepared_tasks"):
        task_sets(SchedulerSettings(pacing=config.pacing))


def test_a_file_of_json_lines_is_read_where_it_lies(tmp_path: Path) -> None:
    config = parse(run_values(tmp_path))
    assert config.pacing.tasks == tmp_path / "tasks.jsonl"
    assert not config.out.exists()


def test_a_start_takes_the_source_as_it_is_then(values: Mapping[str, Any], tmp_path: Path) -> None:
    first = parse(values).pacing.tasks
    assert parse(values).pacing.tasks == first
    parquet(tmp_path, ROWS[:40])
    second = parse(values).pacing.tasks
    assert set(prompts(second)) < set(prompts(first))


def test_a_pattern_and_a_directory_are_looked_for_beside_the_file(
    values: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_dataset(tmp_path, ROWS)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for tasks in ("rows*.parquet", "saved"):
        named = {**values, "out": "out", "pacing": {"tasks": tasks, "map": MAP}}
        named["policy"] = {"model": str(tmp_path / "model")}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(named))
        config = load(tmp_path / "run.yaml")
        assert len(prompts(config.pacing.tasks)) == len(ROWS)


def test_a_variable_may_name_tasks_and_their_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_PACING__TASKS", parquet(tmp_path, ROWS))
    monkeypatch.setenv("SEAMLESSFLOW_PACING__MAP", '{"prompt": "question"}')
    monkeypatch.setenv("SEAMLESSFLOW_PACING__WHERE", '{"level": [1, 2]}')
    assert len(prompts(parse(run_values(tmp_path)).pacing.tasks)) == 40


def test_a_fault_of_a_source_is_one_of_its_setting(
    values: Mapping[str, Any], tmp_path: Path
) -> None:
    wrong = changed(values, "pacing", map={"prompt": "text"})
    assert faults(wrong) == (
        f"pacing.tasks: {tmp_path}/rows.parquet: there is no column 'text', but 'question', "
        "'answer', 'level'",
    )
    missing = changed(values, "pacing", tasks="none.parquet")
    assert faults(missing) == ("pacing.tasks: none.parquet: No such file or directory",)


def test_a_configuration_that_is_wrong_elsewhere_prepares_nothing(
    values: Mapping[str, Any], tmp_path: Path
) -> None:
    (line,) = faults(changed(values, "run", steps=-1))
    assert line.startswith("run.steps")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"held_back": 0.4},
            "evaluation.held_back: pacing names the same source with held_back 0.3",
        ),
        ({}, "evaluation.held_back: pacing names the same source with held_back 0.3, and here it"),
        (
            {"held_back": 0.3, "map": {"prompt": "question"}},
            "evaluation.map: pacing names the same",
        ),
    ],
)
def test_an_evaluation_that_may_share_tasks_with_the_training_is_refused(
    values: Mapping[str, Any], more: Mapping[str, Any], line: str
) -> None:
    evaluation = {"tasks": "rows.parquet", "map": MAP, **more}
    (fault,) = faults({**values, "evaluation": evaluation})
    assert fault.startswith(line)


@pytest.mark.parametrize(
    ("section", "value", "line"),
    [
        ("pacing", {"map": MAP, "sources": {"a": {"tasks": "rows.parquet"}}}, "name them in each"),
        ("pacing", {"tasks": "rows.parquet", "held_back": 1}, "pacing.held_back: "),
        ("pacing", {"tasks": "rows.parquet", "where": {"level": {"above": 1}}}, "pacing.where"),
        ("evaluation", {"where": {"level": 1}}, "name them in each set"),
    ],
)
def test_a_choice_of_another_form_is_refused(
    values: Mapping[str, Any], section: str, value: Any, line: str
) -> None:
    assert any(line in fault for fault in faults({**values, section: value}))


def test_an_option_with_another_form_is_refused(values: Mapping[str, Any], tmp_path: Path) -> None:
    def check(config: RunConfig) -> Any:
        return before_evaluation(config, tmp_path / "model", tmp_path / "rows.parquet")

    with pytest.raises(ConfigRejected, match="takes a file of JSON lines"):
        parse(values, check=check, read_tasks=no_task)
