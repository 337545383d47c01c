"""Checks of a run under rules: each finds its fault in records with one, and none in right ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.scheduler.state.arms import Arms, PassCounting
from seamlessflow.scheduler.state.state import State, apply
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.faults.rules.choices import RULES, admission_faults, arm_faults
from tests.faults.rules.settings import GROUP_SIZE, PERIOD
from tests.faults.rules.steps import repeated_faults, rescue_faults, selection_faults
from tests.faults.rules.stops import VERDICT, ControlledText, repeats_at
from tests.properties.arms.faulty_arms import FadesFromTheStepBefore
from tests.properties.arms.histories import History

ADMITTED = control.admitted("g1", "a", group_size=GROUP_SIZE)
AGAIN = control.admitted("g2", "a", group_size=GROUP_SIZE)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([ADMITTED, control.dropped("g1"), AGAIN], ""),
        ([ADMITTED, control.committed(0, ["g1"]), control.published(1), AGAIN], ""),
        ([ADMITTED, control.committed(0, ["g1"]), AGAIN], "g2 has task a, which g1 has"),
        ([ADMITTED, AGAIN], "g2 has task a, which g1 has"),
        ([ADMITTED, replace(AGAIN, sampler_figures={"fell_back": 1.0})], ""),
        ([control.claimed(2), ADMITTED, replace(AGAIN, epoch=2)], ""),
        ([replace(ADMITTED, group_size=1)], "g1 has 1 samples"),
    ],
)
def test_a_task_under_way_that_is_admitted_again_is_found(
    records: Sequence[Record], fault: str
) -> None:
    assert [*admission_faults(records)] == ([fault] if fault else [])


def recorded_arms(seed: int, kind: type[Arms] = Arms) -> tuple[Mapping[int, Record], Sequence[Any]]:
    """Return a history of a run of one policy, and the records of its arms behind it."""
    history = History(seed)
    history.extend(60)
    records = dict(enumerate(history.records)) if not history.policies else {}
    counting = PassCounting(memory=RULES.memory, own_memory=RULES.own_memory)
    arms, state = kind(counting), State.of_run(())
    for offset, record in records.items():
        arms.apply(state, record, offset)
        state = apply(state, record)
    return records, [*arms.snapshots(1, len(records) - 1)]


def test_arms_that_are_dated_a_step_too_early_are_found() -> None:
    assert [fault for seed in range(10) for fault in arm_faults(*recorded_arms(seed), ())] == []
    wrong = (arm_faults(*recorded_arms(seed, FadesFromTheStepBefore), ()) for seed in range(10))
    assert any(list(faults) for faults in wrong)


def stopped(length: int, at: int, exempt: bool = False) -> ControlledText:
    return ControlledText("s t", [1, *[7] * (length - 1)], VERDICT if at else "", at, exempt)


def test_a_turn_repeats_itself_behind_as_many_tokens_as_the_rule_says() -> None:
    assert [repeats_at([7] * length) for length in (PERIOD - 1, PERIOD, 99)] == [0, PERIOD, PERIOD]
    assert repeats_at([*range(PERIOD)] * 2) == 2 * PERIOD
    assert repeats_at([*range(99)]) == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (stopped(PERIOD + 1, PERIOD + 1), ""),
        (stopped(PERIOD, 0), ""),
        (stopped(PERIOD + 2, PERIOD + 2), "'repetition: repeats' at 18, but its tokens repeat at"),
        (stopped(PERIOD + 2, 0), "'' at 0, but its tokens repeat at 17"),
        (stopped(PERIOD + 2, PERIOD + 1), "18 tokens, but it was to end at 17"),
        (stopped(PERIOD + 2, PERIOD + 1, exempt=True), ""),
    ],
)
def test_a_turn_that_is_ended_a_token_late_is_found(text: ControlledText, fault: str) -> None:
    assert text.fault.startswith(f"s t: {fault}" if fault else fault) and bool(text.fault) == bool(
        fault
    )


SESSIONS = ("g1.0.0", "g1.1.0")
RETURNS = {"g0": (1.0, 0.0), "g1": (0.0, 0.0)}
READY = {
    name: control.ready(name, sessions=(f"{name}.0.0", f"{name}.1.0"), returns=returns)
    for name, returns in RETURNS.items()
}
TASKS = {"g0": "a", "g1": "a"}


def step(number: int, group: str, *trained: str, **changes: Any) -> r.StepCommitted:
    members = r.StepGroup(group_id=group, sessions=READY[group].sessions, **changes)
    return control.committed(number, [members], trained_tokens=dict.fromkeys(trained, 5))


def rescued(by: str = "g0.0.0", uses: int = 1) -> tuple[r.ReplacedSession, ...]:
    return (r.ReplacedSession(session_id="g1.0.0", by=by, pool="own", uses=uses),)


FIRST = step(0, "g0", "g0.0.0", "g0.1.0")


@pytest.mark.parametrize(
    ("second", "tasks", "fault"),
    [
        (step(1, "g1", "g1.1.0", "g0.0.0", replaced=rescued()), TASKS, ""),
        (step(1, "g1", replaced=rescued(uses=2)), TASKS, "g0.0.0 was trained 1 times, not 2"),
        (step(1, "g1", replaced=rescued()), {**TASKS, "g0": "b"}, "by g0.0.0, of another task"),
        (step(1, "g0", replaced=rescued()), TASKS, "g0 of returns (1.0, 0.0) was rescued by"),
    ],
)
def test_an_exchange_that_is_none_by_the_rule_is_found(
    second: r.StepCommitted, tasks: Mapping[str, str], fault: str
) -> None:
    faults = [*rescue_faults([FIRST, second], READY, tasks)]
    assert [fault in text for text in faults] == ([True] if fault else [])


def test_a_session_that_too_many_steps_train_is_found() -> None:
    steps = [FIRST, *(replace(FIRST, step=number) for number in (1, 1, 2))]
    faults = [*rescue_faults(steps, READY, TASKS)]
    assert faults == ["g0.0.0 was trained 3 times", "g0.1.0 was trained 3 times"]


def test_a_step_that_is_executed_again_with_others_is_found() -> None:
    assert [*repeated_faults([FIRST, FIRST])] == []
    changed = replace(FIRST, trained_tokens={"g0.0.0": 5})
    faults = [*repeated_faults([FIRST, changed])]
    assert faults == ["step 0 was executed again with other trained_tokens"]


def test_a_selection_with_one_outcome_of_two_is_found() -> None:
    ready = {"g0": replace(READY["g0"], sessions=("x", "y", "z"), returns=(1.0, 0.0, 0.0))}
    assert [*selection_faults([step(0, "g0", "x", "y")], ready)] == []
    faults = [*selection_faults([step(0, "g0", "y", "z"), step(1, "g0", "x", "y", "z")], ready)]
    assert faults == [
        "step 0: g0 is trained with one outcome",
        "step 1: 3 sessions of g0 are trained",
    ]
