"""Draws with a sampler and with stages of weights: shares, order, and a record that says all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.scheduler.decisions.pacing import admissions
from seamlessflow.scheduler.sampling.draws import (
    FELL_BACK,
    Drawn,
    TaskSampling,
    next_draws,
    sampling_of,
)
from seamlessflow.scheduler.sampling.registry import SAMPLERS
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.settings import PacingSection, RunSection
from seamlessflow.scheduler.state.arms import Arm, Arms
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.mixture import Draws, Stages, mixed
from seamlessflow.scheduler.tasks.source import AGAIN, TaskRow, TaskSource
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, scheduler_settings
from tests.builders.scheduler.sampling import SampledRun, passes, planted, source_of

GROUP_SIZE = 8
TURN_LIMIT = 20


def sampling_by(draws: Draws, name: str | None = None, terms: str | None = None) -> TaskSampling:
    sampler = SamplerSection.model_validate({"name": name})
    section = TermsSection.model_validate({"name": terms, **({"exempt": 0.0} if terms else {})})
    return sampling_of(sampler, section, {}, draws, (0, GROUP_SIZE, TURN_LIMIT))


def run_of(draws: Draws, name: str | None = None, terms: str | None = None) -> SampledRun:
    return SampledRun(draws, sampling_by(draws, name, terms))


def two(counts: Mapping[str, int], weights: Sequence[tuple[int, int, int]]) -> Stages:
    """Return stages of the sources `a` and `b`: step, weight of `a`, weight of `b`."""
    a, b = (source_of(counts[name], name) for name in "ab")
    return Stages(
        [(step, mixed([(a, Fraction(of_a)), (b, Fraction(of_b))])) for step, of_a, of_b in weights]
    )


def letters(names: Sequence[str]) -> str:
    return "".join(name[0] for name in names)


def test_without_sampler_and_stages_the_draws_and_figures_are_those_of_the_source() -> None:
    mixture = mixed([(source_of(5, "a"), Fraction(2)), (source_of(3, "b"), Fraction(1))])
    draws: Sequence[TaskSource | Any] = [source_of(5), mixture]
    for source in draws:
        run = run_of(source)
        drawn = [each for count in (1, 4, 7) for each in run.admit(count)]
        for number, each in enumerate(drawn):
            assert each == Drawn(source.draw(number), source.rule(number))


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_shares_of_sources_stay_exact_with_a_sampler(name: str) -> None:
    a, b = source_of(100, "a"), source_of(100, "b")
    mixture = mixed([(a, Fraction(3)), (b, Fraction(1))])
    run = run_of(mixture, name)
    names = [task_id for count in (1, 2, 5, 12, 20) for task_id in run.names(count)]
    assert letters(names) == "".join(mixture.draw(number).split for number in range(40))
    assert Counter(letters(names)) == {"a": 30, "b": 10}
    assert len(set(names)) == 40, "all are under way"


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_a_task_is_not_drawn_again_before_its_group_has_ended(name: str) -> None:
    run = run_of(source_of(12), name)
    under_way: list[str] = []
    for number in range(60):
        under_way += run.names(1 + number % 3)
        assert len(set(under_way)) == len(under_way)
        while len(under_way) > 4:
            run.finish(under_way.pop(0), 1.0, 0.0)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_with_fewer_tasks_than_places_the_order_goes_on_shuffled_and_says_so(name: str) -> None:
    source = source_of(4)
    run = run_of(source, name)
    drawn = run.admit(6)
    assert len(drawn) == 4, "the next decision asks for the rest"
    drawn += run.admit(2)
    assert [FELL_BACK in each.rule.figures for each in drawn] == [False] * 4 + [True] * 2
    assert {each.row.task_id for each in drawn[:4]} == {f"train-{n}" for n in range(4)}
    for number in (4, 5):
        figures = {**source.rule(number).figures, FELL_BACK: 1.0}
        assert (drawn[number].row, drawn[number].rule.name) == (source.draw(number), "shuffled")
        assert drawn[number].rule.figures == figures


def test_the_shuffled_order_leaves_out_tasks_that_are_under_way_while_others_are_left() -> None:
    source = source_of(6)
    run = run_of(source)
    begun = run.names(2)
    run.sampling = sampling_by(source, "srpo")
    run.arms = planted({f"task:train-{n}": passes(8, 0) for n in range(6) if n != 1})
    drawn = [each for _ in range(4) for each in run.admit(1)]
    assert {each.row.task_id for each in drawn} | set(begun) == {f"train-{n}" for n in range(6)}
    for each in drawn:
        if FELL_BACK in each.rule.figures:
            assert source.draw(int(each.rule.figures["draw"])) == each.row


def test_a_choice_is_recorded_with_rule_version_and_figures() -> None:
    run = run_of(
        mixed([(source_of(9, "a"), Fraction(1)), (source_of(9, "b"), Fraction(1))]), "vade"
    )
    _, drawn = run.admit(2)
    assert (drawn.rule.name, drawn.rule.version, drawn.rule.source_sha256) == ("vade", 1, "")
    assert drawn.rule.figures == {
        "draw": 1,
        "source_draw": 0,
        "share": 0.5,
        "tasks": 9,
        "rate": 0.5,
        "drawn_rate": drawn.rule.figures["drawn_rate"],
    }


def test_tasks_to_be_tried_again_come_first() -> None:
    run = run_of(source_of(9), "target")
    failed, _, _ = run.names(3)
    run.drop(failed, "failed")
    again, fresh = run.admit(2)
    assert (again.row.task_id, again.rule) == (failed, AGAIN)
    assert fresh.row.task_id != failed and fresh.rule.name == "target"
    assert run.state.first.ledger.drawn == 4


@pytest.mark.parametrize("name", [None, "greso"])
def test_a_stage_begins_at_its_step_and_not_before(name: str | None) -> None:
    run = run_of(two({"a": 90, "b": 90}, [(0, 1, 0), (3, 1, 3), (5, 0, 1)]), name)
    drawn = ""
    for step in range(1, 7):
        drawn += letters(run.names(8)) + " "
        run.train(step)
    assert drawn.split()[:3] == ["a" * 8] * 3
    assert [Counter(part) for part in drawn.split()[3:5]] == [{"a": 2, "b": 6}] * 2
    assert drawn.split()[5:] == ["b" * 8]


def test_shares_are_exact_in_each_stage_whatever_was_drawn_before() -> None:
    stages = two({"a": 90, "b": 90}, [(0, 1, 1), (1, 1, 2)])
    run = run_of(stages)
    run.admit(7)
    run.train(1)
    _, mixture = stages.at(1)
    names = run.names(1) + run.names(4) + run.names(7)
    assert letters(names) == "".join(mixture.draw(number).split for number in range(12))


@pytest.mark.parametrize("taken_over", [False, True])
def test_each_source_goes_on_behind_its_earlier_draws(taken_over: bool) -> None:
    stages = two({"a": 20, "b": 20}, [(0, 3, 1), (1, 1, 3), (2, 1, 1)])
    run = run_of(stages)
    drawn: list[Drawn] = []
    for step in (1, 2, 3):
        for count in (3, 4, 1):
            drawn += run.admit(count)
            if taken_over:
                run.take_over()
        run.train(step)
    for name in "ab":
        rows = [each.row for each in drawn if each.row.split == name]
        source = source_of(20, name)
        assert rows == [source.draw(number) for number in range(len(rows))]
    for each in drawn:
        draw = int(each.rule.figures["source_draw"])
        assert source_of(20, each.row.split).draw(draw) == each.row, "the record says all"
    assert [each.rule.figures["stage"] for each in drawn] == [0] * 8 + [1] * 8 + [2] * 8


def test_a_source_that_rests_in_a_stage_of_its_own_goes_on_later() -> None:
    run = run_of(two({"a": 20, "b": 20}, [(0, 1, 0), (1, 0, 1), (2, 1, 0)]))
    names: list[str] = []
    for step in (1, 2, 3):
        names += run.names(5)
        run.train(step)
    source = source_of(20, "a")
    wanted = [source.draw(number).task_id for number in range(10)]
    assert [name for name in names if name[0] == "a"] == wanted


def test_the_arms_of_a_choice_have_its_pool() -> None:
    words = {n: {"level": str(n % 2)} for n in range(4)}
    run = run_of(source_of(4, metadata=words), "vade")
    for drawn in run.admit(4):
        assert drawn.arms == (f"pool:level:{drawn.row.metadata['level']}",)
    assert run.arms.arm("pool:level:0").draws == 2
    assert run.arms.arm("source:train").draws == 4


def admitted(
    drawing: TaskSource, state: State, arms: Arms, **sections: str
) -> tuple[int, int, int]:
    """Return size, least size and limit of turns of the next group."""
    settings = scheduler_settings(
        run=RunSection(group_size=GROUP_SIZE, turn_limit=TURN_LIMIT, steps=4),
        pacing=PacingSection(tasks=Path("tasks.jsonl")),
    )
    sampling = sampling_by(drawing, **sections)
    group, *_ = admissions(state, settings, drawing, 0, arms, sampling)
    return group.group_size, group.min_group_size, group.turn_limit


def alone(**members: Any) -> TaskSource:
    """Return a source of a single task with these sizes."""
    row = TaskRow("train-0", b"{}", {}, split="train", **members)
    return TaskSource([row], {row.task_id: row}.get, name="train")


def test_a_group_has_the_samples_of_its_choice_then_of_its_task_then_of_the_run() -> None:
    state = fold(control.joined(), control.assigned(), control.acquired())
    assert admitted(alone(), state, Arms()) == (8, 2, TURN_LIMIT)
    assert admitted(alone(samples=5, min_samples=4, turn_limit=3), state, Arms()) == (5, 4, 3)
    # The one task gets the whole budget of `trace`, at most twice the run's size.
    assert admitted(alone(samples=5), state, Arms(), name="trace")[0] == 16
    arms = planted({"task:train-0": passes(10**7, 0, longest=6)})
    assert admitted(alone(), state, arms, terms="by_success") == (2, 2, 6)
    assert admitted(alone(samples=3, min_samples=3), state, arms, terms="by_success") == (2, 2, 6)


def test_terms_hold_for_tasks_that_are_tried_again_too() -> None:
    source = source_of(3)
    run = run_of(source, terms="by_success")
    (failed,) = run.names(1)
    run.drop(failed, "failed")
    arms = planted({f"task:{failed}": passes(10**7, 0, longest=6)})
    (again,) = next_draws(run.state, arms, source, run.sampling, 1)
    assert (again.rule, again.samples, again.turn_limit) == (AGAIN, 2, 6)


def test_a_task_that_the_file_lacks_by_now_is_tried_again_without_terms() -> None:
    run = run_of(source_of(3), "vade", "by_success")
    run.happen(control.admitted("old", "gone", split="train"), control.dropped("old", "failed"))
    (again,) = run.admit(1)
    assert again == Drawn(TaskRow("gone", b"", {}), AGAIN)


def test_a_pool_without_a_result_leaves_the_rate_of_a_task_in_the_middle() -> None:
    run = run_of(source_of(1), "target")
    (drawn,) = run.admit(1)
    assert drawn.rule.figures["rate"] == 0.5
    assert run.arms.arm("task:train-0") == Arm(draws=1, figures=drawn.rule.figures)
