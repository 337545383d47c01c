"""Check of several files of tasks before the start: sources, forks and evaluation sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_evaluation
from seamlessflow.config_file import Check
from tests.builders.run_files import changed, faults, run_values


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a configuration without tasks, in whose folder three files of tasks are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("math").write_text('{"id": 1}\n{"id": 2}')
    Path("code").write_text('{"id": 3}\n\n{"id": 2}')
    Path("empty").write_text("\n")
    return changed(run_values(tmp_path), "pacing", tasks=None)


def sources(values: Mapping[str, Any], **files: str) -> Mapping[str, Any]:
    return changed(
        values, "pacing", sources={name: {"tasks": file} for name, file in files.items()}
    )


def sets(values: Mapping[str, Any], **files: str) -> Mapping[str, Any]:
    evaluations = {name: {"tasks": file} for name, file in files.items()}
    return changed(changed(values, "pacing", tasks="math"), "evaluation", sets=evaluations)


def test_sources_are_tasks_enough(values: Mapping[str, Any]) -> None:
    assert faults(sources(values, math="math")) == ()


def test_a_fault_of_a_source_is_named_with_its_place(values: Mapping[str, Any]) -> None:
    assert faults(sources(values, a="math", b="nope", c="empty")) == (
        "pacing.sources.b.tasks: nope: No such file or directory",
        "pacing.sources.c.tasks: empty: there are no tasks in it",
    )


def test_an_id_of_two_sources_is_named_with_both_places(values: Mapping[str, Any]) -> None:
    assert faults(sources(values, math="math", code="code")) == (
        "pacing.sources.math.tasks: math, line 2: code, line 3 has the id '2', too",
    )


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"weight": 0}, "pacing.sources.a.weight: "),
        ({"weight": -2}, "pacing.sources.a.weight: "),
        ({"wait": 1}, "pacing.sources.a.wait: "),
    ],
)
def test_a_wrong_weight_is_named(
    values: Mapping[str, Any], more: dict[str, object], line: str
) -> None:
    wrong = changed(values, "pacing", sources={"a": {"tasks": "math", **more}})
    assert faults(wrong)[0].startswith(line)


def test_both_forms_at_once_are_refused(values: Mapping[str, Any]) -> None:
    both = changed(sources(values, math="math"), "pacing", tasks="code")
    assert any(
        "pacing.tasks and pacing.sources exclude each other" in line for line in faults(both)
    )
    both = changed(sets(values, easy="code"), "evaluation", tasks="code")
    assert any("name one of them" in line for line in faults(both))


def test_each_evaluation_set_is_checked_and_they_may_have_tasks_in_common(
    values: Mapping[str, Any],
) -> None:
    assert faults(sets(values, easy="code", hard="math")) == ()
    assert faults(sets(values, easy="code", hard="nope")) == (
        "evaluation.sets.hard.tasks: nope: No such file or directory",
    )


def evaluation(tasks: Path | None = None, chosen: str | None = None) -> Check:
    return lambda config: before_evaluation(config, config.policy.model, tasks, chosen)


def test_the_sets_that_are_evaluated_are_checked(values: Mapping[str, Any]) -> None:
    two = sets(values, easy="code", hard="nope")
    fault = "evaluation.sets.hard.tasks: nope: No such file or directory"
    assert faults(two, evaluation()) == (fault,)
    assert faults(two, evaluation(chosen="hard")) == (fault,)
    assert faults(two, evaluation(chosen="easy")) == ()
    assert faults(two, evaluation(chosen="other")) == (
        "set: there is no evaluation set 'other', but easy, hard",
    )
    assert faults(two, evaluation(Path("code"), "easy")) == (
        "set: there is no evaluation set 'easy', but the tasks of --tasks alone",
    )


@pytest.mark.parametrize(
    ("trainer", "lines"),
    [
        ({"advantage": "rloo"}, 1),
        ({"advantage": "reinforce_pp"}, 0),
        ({"advantage": "grpo", "loss": {"surrogate": "cloning"}}, 0),
    ],
)
def test_groups_of_one_session_are_refused_where_sessions_are_compared(
    values: Mapping[str, Any], trainer: dict[str, object], lines: int
) -> None:
    alone = changed(values, "run", group_size=1, min_group_size=1)
    messages = faults(changed(sources(alone, math="math"), "trainer", **trainer))
    assert len(messages) == lines
    assert all(line.startswith("run.group_size: advantage rloo compares") for line in messages)


def test_a_task_may_have_a_group_of_its_own_size(values: Mapping[str, Any]) -> None:
    Path("sized").write_text('{"id": 1, "group_size": 4}')
    alone = changed(values, "run", group_size=1, min_group_size=1)
    assert faults(sources(alone, a="sized")) == ()
