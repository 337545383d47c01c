"""The slider over `control`: its marks, and the step that its place belongs to."""

import pytest

from seamlessflow.console.log.moment import Moment
from seamlessflow.console.views.frame import MOST_MARKS, Slider, slider_of
from seamlessflow.schemas.records import Record
from tests.builders.console.course import lineage
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control

RUN = [
    control.claimed(),
    lineage("a", "", 0),
    control.joined("w"),
    control.completed(0, policy="policy"),
    control.joined("v"),
    control.completed(1, policy="policy"),
    lineage("b", "a", 1),
    control.completed(1, policy="policy"),
    control.finished(2, policy="policy"),
    control.claimed(),
]


def slider(records: list[Record], offset: int | None = None) -> Slider:
    history, _ = history_of(items_of("control", records))
    moment = None if offset is None else Moment("control", 0, offset)
    made = slider_of(history.index, history.course, history.outline(moment))
    assert made is not None
    return made


@pytest.mark.parametrize(
    "offset, step",
    [
        (0, ""),
        (1, "step 1"),
        (2, "step 1"),
        (3, "step 1"),
        (4, "step 2"),
        (5, "step 2"),
        (6, "step 2"),
        (7, "step 2"),
        (8, "after step 2"),
        (None, "after step 2"),
    ],
)
def test_a_moment_belongs_to_the_step_that_was_under_way(offset: int | None, step: str) -> None:
    assert slider(RUN, offset).step == step


def test_the_step_of_a_moment_stays_as_the_log_grows() -> None:
    for offset in range(len(RUN)):
        assert slider(RUN[: offset + 1]).step == slider(RUN, offset).step


def test_a_mark_has_the_name_of_its_step() -> None:
    made = slider(RUN)
    assert (made.marks, made.names) == ((3, 5, 7), ("step 1", "step 2", "step 2"))
    assert (made.first, made.last, made.value, made.every) == (0, 9, 9, True)


@pytest.mark.parametrize(
    "offset, before, behind",
    [(0, None, 3), (3, None, 5), (4, 3, 5), (5, 3, 7), (7, 5, None), (None, 7, None)],
)
def test_a_moment_has_the_ends_of_the_steps_around_it(
    offset: int | None, before: int | None, behind: int | None
) -> None:
    made = slider(RUN, offset)
    assert (made.before, made.behind) == (before, behind)


def test_a_name_has_the_policy_if_there_are_several() -> None:
    records = [
        control.completed(0, policy="a"),
        control.completed(0, policy="b"),
        control.claimed(),
    ]
    made = slider(records)
    assert made.names == ("step 1 of a", "step 1 of b")
    assert made.step == "step 2 of b"


def test_of_many_steps_some_have_a_mark_the_last_included() -> None:
    made = slider([control.completed(step) for step in range(1_000)])
    assert len(made.marks) == len(made.names) <= MOST_MARKS
    assert (made.marks[-1], made.names[-1], made.every) == (999, "step 1000", False)
