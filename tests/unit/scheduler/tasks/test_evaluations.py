"""Evaluations: which versions are evaluated on which sets, and with which groups."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.infra.settings import SamplingSection
from seamlessflow.scheduler.decisions import group_credits, pacing
from seamlessflow.scheduler.settings import (
    EvaluationSection,
    EvaluationSetSection,
    PacingSection,
    RunSection,
    SchedulerSettings,
)
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas.records import GroupAdmitted, Record, Sampling
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, holds, scheduler_settings, task_source

RUN = RunSection(groups_per_step=2, group_size=2, lag=1, steps=10)
PACING = PacingSection(tasks=Path("tasks"), task_timeout_s=10, group_timeout_s=100)
STARTED: list[Record] = [control.claimed(), control.published(0), control.joined("w"), *holds("w")]


def evaluated(*records: Record, every: int = 2) -> list[str]:
    """Return the groups of the evaluation that is due after these records."""
    section = EvaluationSection(every=every)
    settings = scheduler_settings(RUN, pacing=PACING, evaluation=section)
    due = pacing.evaluations(fold(*STARTED, *records), settings, "test", task_source(1), 0)
    return [group.group_id for group in due]


def evaluation_begun(version: int) -> GroupAdmitted:
    return control.admitted(f"run-eval{version}-0", version=version, purpose="eval", split="test")


def test_evaluations_count_trained_steps_and_not_versions() -> None:
    first = [control.published(0, step=0), evaluation_begun(0)]
    assert evaluated(control.published(0, step=0)) == ["run-eval0-0"]
    assert evaluated(*first) == []
    assert evaluated(*first, control.published(1, step=1)) == []
    assert evaluated(*first, control.published(2, step=2)) == ["run-eval2-0"]
    assert evaluated(*first, control.published(3, step=3)) == ["run-eval3-0"], "2 was overtaken"
    assert evaluated(*first, control.skipped(0), control.published(2, step=2)) == []


def test_a_resume_that_repeats_steps_under_new_versions_evaluates_them_once() -> None:
    before = [control.published(0, step=0), evaluation_begun(0)]
    before += [control.published(2, step=2), evaluation_begun(2), control.published(3, step=3)]
    assert evaluated(*before, control.published(4, step=2)) == []
    assert evaluated(*before, control.published(5, step=3)) == []
    assert evaluated(*before, control.published(6, step=4)) == ["run-eval6-0"]


def test_the_weights_of_the_last_step_are_evaluated() -> None:
    before = [control.published(0, step=0), evaluation_begun(0)]
    last = control.published(RUN.steps, step=RUN.steps)
    assert evaluated(*before, last, every=1000) == [f"run-eval{RUN.steps}-0"]
    assert evaluated(*before, last, evaluation_begun(RUN.steps), every=1000) == []


def test_a_round_that_was_cut_short_goes_on_and_takes_no_credit() -> None:
    settings = scheduler_settings(
        RUN, pacing=PACING, evaluation=EvaluationSection(every=2, samples=3, pinned=True)
    )
    source = task_source(2)

    due = pacing.evaluations(fold(*STARTED, control.published(2)), settings, "test", source, 0)
    assert [group.group_id for group in due] == ["run-eval2-0", "run-eval2-1"]
    half = fold(*STARTED, control.published(2), due[0])
    assert pacing.evaluations(half, settings, "test", source, 0) == due[1:]
    assert group_credits.free_credits(half, settings, 0) == 4
    issued = pacing.tasks(
        half.first.ledger, {}, settings, TaskSets(evaluations={"test": source}), 0
    )
    assert [(t.purpose, t.sample, t.pinned_version) for t in issued] == [
        ("eval", sample, 2) for sample in range(3)
    ]


SEVERAL = scheduler_settings(
    RUN,
    pacing=PACING,
    evaluation=EvaluationSection(
        every=4,
        samples=2,
        sets={
            "easy": EvaluationSetSection(tasks=Path("easy"), every=2),
            "hard": EvaluationSetSection(tasks=Path("hard"), samples=3, pinned=True),
        },
    ),
)
SETS = TaskSets(task_source(), {"easy": task_source(2), "hard": task_source(1)})


def due(*records: Record, settings: SchedulerSettings = SEVERAL) -> list[GroupAdmitted]:
    """Return the groups of all sets that are due after these records."""
    state = fold(*STARTED, *records)
    return [
        group
        for split, source in SETS.evaluations.items()
        for group in pacing.evaluations(state, settings, split, source, 0)
    ]


def names(groups: list[GroupAdmitted]) -> list[str]:
    return [group.group_id for group in groups]


def test_each_set_has_rounds_of_its_own() -> None:
    first = due()
    assert names(first) == ["run-eval0-easy-0", "run-eval0-easy-1", "run-eval0-hard-0"]
    assert [group.split for group in first] == ["easy", "easy", "hard"]
    second = due(*first, control.published(2, step=2))
    assert names(second) == ["run-eval2-easy-0", "run-eval2-easy-1"]
    third = due(*first, control.published(2, step=2), *second, control.published(4, step=4))
    assert [group.split for group in third] == ["easy", "easy", "hard"]


def test_a_round_of_one_set_that_was_cut_short_goes_on_beside_another() -> None:
    first = due()
    assert due(*first) == []
    assert due(first[0], first[2]) == [first[1]]


def test_the_weights_of_the_last_step_are_evaluated_on_every_set() -> None:
    before = [*due(), control.published(9, step=RUN.steps - 1)]
    before += due(*before)
    last = control.published(10, step=RUN.steps)
    assert {group.split for group in due(*before, last)} == {"easy", "hard"}


def test_equal_ids_of_two_sets_are_the_tasks_of_each() -> None:
    first = due()
    assert [group.group_size for group in first] == [2, 2, 3]
    ledger = fold(*STARTED, *first).first.ledger
    issued = pacing.tasks(ledger, {}, SEVERAL, SETS, 0)
    tasks = [(t.split, t.task_id, t.sample, t.pinned_version) for t in issued]
    assert tasks == [
        *(("easy", name, sample, None) for name in ("task-0", "task-1") for sample in (0, 1)),
        *(("hard", "task-0", sample, 0) for sample in (0, 1, 2)),
    ]


def test_each_set_is_sampled_as_its_settings_say() -> None:
    greedy = SamplingSection(temperature=0)
    settings = scheduler_settings(
        RUN,
        pacing=PACING,
        evaluation=EvaluationSection(
            sampling=SamplingSection(temperature=0.5, top_k=4),
            sets={
                "easy": EvaluationSetSection(tasks=Path("easy"), sampling=greedy),
                "hard": EvaluationSetSection(tasks=Path("hard")),
            },
        ),
    )
    ledger = fold(*STARTED, *due(settings=settings)).first.ledger
    issued = {t.split: t.overrides for t in pacing.tasks(ledger, {}, settings, SETS, 0)}
    assert issued == {
        "easy": Sampling(temperature=0),
        "hard": Sampling(temperature=0.5, top_k=4),
    }


def test_what_is_trained_is_sampled_as_the_policy_is() -> None:
    settings = scheduler_settings(
        RUN,
        pacing=PACING,
        evaluation=EvaluationSection(sampling=SamplingSection(temperature=0)),
    )
    admitted = pacing.admissions(fold(*STARTED), settings, task_source(), 0)
    issued = pacing.tasks(
        fold(*STARTED, *admitted).first.ledger, {}, settings, TaskSets(task_source()), 0
    )
    assert [task.overrides for task in issued] == [None] * len(issued)
    assert issued


@pytest.mark.parametrize("temperature", [-1, 0.001, 2.5, float("nan")])
def test_a_temperature_at_which_no_engine_samples_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        SamplingSection(temperature=temperature)


def test_one_form_of_evaluation_is_named() -> None:
    sets = {"easy": EvaluationSetSection(tasks=Path("easy"))}
    with pytest.raises(ValueError, match="name one of them"):
        EvaluationSection(tasks=Path("t"), sets=sets)
    with pytest.raises(ValueError, match="String should match pattern"):
        EvaluationSection(sets={"a/b": sets["easy"]})
    assert EvaluationSection(sets=sets).splits == ("easy",)
    assert EvaluationSection(tasks=Path("t"), split="held").splits == ("held",)
    assert EvaluationSection().splits == ()


def test_a_set_passes_by_its_own_terms_or_those_of_all_sets() -> None:
    tasks = {"tasks": "t.jsonl"}
    section = EvaluationSection.model_validate(
        {
            "success": 0.5,
            "k": [1, 3],
            "samples": 4,
            "sets": {"easy": tasks, "hard": {**tasks, "k": [4], "success": 0}},
        }
    )
    assert section.passing("easy") == (0.5, (1, 3))
    assert section.passing("hard") == (0.0, (4,))
    assert EvaluationSection().passing("test") == (1.0, ())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"k": [2]}, "evaluation: k is more than its samples, 1"),
        ({"k": [0]}, "greater than or equal to 1"),
        (
            {"samples": 2, "sets": {"hard": {"tasks": "t.jsonl", "k": [3]}}},
            "evaluation.sets.hard: k is more than its samples, 2",
        ),
    ],
)
def test_a_k_that_no_task_has_samples_for_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        EvaluationSection.model_validate(values)
