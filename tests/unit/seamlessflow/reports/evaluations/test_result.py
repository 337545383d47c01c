"""Results of evaluations are written and read again."""

import json
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from seamlessflow.reports.evaluations.comparison import compare
from seamlessflow.reports.evaluations.result import (
    EvaluatedTask,
    EvaluationResult,
    NoResult,
    read_result,
    write_result,
)
from seamlessflow.reports.evaluations.view import comparison_view, evaluation_table
from seamlessflow.trainer.data.figures.chances import ConfidenceInterval
from seamlessflow.trainer.data.lengths import SessionCost

TASKS = (
    EvaluatedTask("7\u2028 \N{GRINNING FACE}", (1.0, 0.5), (SessionCost(1, 2, 3),) * 2),
    EvaluatedTask("spoilt", ()),
)


def result(tasks: tuple[EvaluatedTask, ...] = TASKS, success: float = 0.5) -> EvaluationResult:
    return EvaluationResult(
        reward=0.75,
        error=None,
        sessions=2,
        failed=0,
        missing=2,
        pass_at={2: 1.0},
        pass_at_range={2: ConfidenceInterval(0.25, 1.0)},
        success=success,
        turns=1.0,
        tasks=tasks,
    )


def written(directory: Path, several: bool, **results: EvaluationResult) -> Path:
    """Return the directory with the files of an evaluation."""
    directory.mkdir(exist_ok=True)
    sampling = {name: {"temperature": 0.0} for name in results}
    write_result(directory, {"weights": "w", "version": 3}, results, sampling, several)
    return directory


def shown(view: RenderableType) -> str:
    """Return what a wide terminal shows."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.mark.parametrize("several", [False, True])
def test_each_task_and_the_success_are_read_again(tmp_path: Path, several: bool) -> None:
    out = written(tmp_path, several, hard=result())
    for place in (out, out / "evaluation.json", out / "tasks.jsonl"):
        (name, evaluated), *others = read_result(place).items()
        assert (name, others, evaluated.success) == ("hard", [], 0.5)
        assert tuple(evaluated.tasks.values()) == TASKS


def test_figures_of_a_single_set_stand_beside_its_weights(tmp_path: Path) -> None:
    file = written(tmp_path, False, test=result()) / "evaluation.json"
    figures = json.loads(file.read_text())
    assert (figures["version"], figures["set"], figures["reward"]) == (3, "test", 0.75)
    assert figures["pass_at_range"] == {"2": [0.25, 1.0]}
    assert "tasks" not in figures


@pytest.mark.parametrize("text", ["", "[]", '{"set": "test"}', '{"sets": {"test": 3}}'])
def test_a_place_without_a_result_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoResult, match="has no result of `seamlessflow eval`"):
        read_result(tmp_path)
    (tmp_path / "evaluation.json").write_text(text)
    (tmp_path / "tasks.jsonl").touch()
    with pytest.raises(NoResult, match="its result cannot be read"):
        read_result(tmp_path)


def test_a_task_of_an_unnamed_set_is_a_fault_of_the_file(tmp_path: Path) -> None:
    out = written(tmp_path, False, test=result())
    with (out / "tasks.jsonl").open("a") as file:
        file.write('{"set": "other"}\n')
    with pytest.raises(NoResult, match="KeyError"):
        read_result(out)


def test_a_table_has_a_column_for_each_set() -> None:
    text = shown(evaluation_table({"easy": result(), "hard": result()}))
    assert text.count("1.000 (0.250 to 1.000)") == 2
    assert [word in text for word in ("easy", "hard", "pass@2", "turns")] == [True] * 4


def test_a_comparison_shows_changed_tasks_and_what_is_left_out(tmp_path: Path) -> None:
    tasks = tuple(EvaluatedTask(f"task {number}\n", (0.0,)) for number in range(30))
    solved = tuple(EvaluatedTask(task.task_id, (1.0,)) for task in tasks[:25])
    places = [
        written(tmp_path / name, True, test=result(of_side), more=result((TASKS[number],)))
        for number, (name, of_side) in enumerate({"a": tasks, "b": solved}.items())
    ]
    text = shown(comparison_view(compare(*map(read_result, places))))
    assert "test: 25 tasks compared (left out: 5 in the first alone)" in text
    assert "McNemar" in text
    assert "better: 25: task 0\u240a 0 → 1, " in text
    assert "and 5 more" in text
    assert "left out, with tasks of the first alone: more" in text
