"""Statistics by arm behind random histories and takeovers equal those of a plain second form."""

from collections.abc import Mapping
from typing import Any

import pytest

from seamlessflow.scheduler.state.arms import Arm, Arms, PassCounting
from seamlessflow.scheduler.state.state import State, apply
from tests.properties.arms.faulty_arms import FAULTY
from tests.properties.arms.histories import History
from tests.properties.arms.lives import taken_over
from tests.properties.arms.plain_figures import PlainRules, plain_figures

HISTORIES = 200
EVENTS = 60
TAKEOVERS = 3
RULES = PlainRules()
COUNTING = PassCounting(memory=RULES.memory, own_memory=RULES.own_memory, passes=RULES.passes)


def as_of(arm: Arm, step: int, memory: float) -> Mapping[str, object]:
    """Return the figures of an arm, faded to a step as the plain ones are."""
    counts = arm.counts(step, memory)
    named = {name: getattr(arm, name) for name in Arm.__slots__ if name != "at_step"}
    return {**named, "passed": counts.passed, "failed": counts.failed}


def alike(figures: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether figures are the same, but for what rounding does to faded numbers."""
    faded = ("passed", "failed")
    near = all(figures[name] == pytest.approx(others[name]) for name in faded)
    return near and {**figures, **dict.fromkeys(faded)} == {**others, **dict.fromkeys(faded)}


def fault(seed: int, kind: type[Arms] = Arms) -> str:
    """Return how the figures of a history differ from the plain ones; empty if they do not."""
    history = History(seed)
    history.extend(EVENTS)
    start = State.of_run(history.policies)
    present = start
    whole = kind(COUNTING)
    for offset, record in enumerate(history.records):
        whole.apply(present, record, offset)
        present = apply(present, record)
    step = present.first.steps.trained
    plain = plain_figures(history.records, history.policies, RULES)
    if whole.by_name.keys() != plain.keys():
        return f"arms {sorted(whole.by_name.keys() ^ plain.keys())}"
    for name, figures in plain.items():
        memory = 1.0 if name.startswith("past@") else RULES.memory
        if not alike(got := as_of(whole.by_name[name], step, memory), figures):
            return f"{name}: {got}, not {figures}"
    for number in range(TAKEOVERS):
        arms = taken_over(history.records, start, COUNTING, kind, TAKEOVERS * seed + number)
        for name in whole.by_name.keys() | arms.by_name.keys():
            if arms.arm(name) != whole.arm(name):
                return f"takeover {number}: {name} {arms.arm(name)}, not {whole.arm(name)}"
    return ""


def test_figures_equal_those_of_a_plain_form_and_so_they_do_behind_takeovers() -> None:
    for seed in range(HISTORIES):
        assert fault(seed) == "", f"seed {seed}"


@pytest.mark.parametrize("kind", FAULTY)
def test_a_planted_fault_is_seen(kind: type[Arms]) -> None:
    assert any(fault(seed, kind) for seed in range(HISTORIES))


def test_the_histories_have_what_they_should() -> None:
    """Otherwise all of this would show nothing."""
    seen: set[str] = set()
    for seed in range(20):
        history = History(seed)
        history.extend(EVENTS)
        seen |= {type(record).__name__ for record in history.records}
        figures = plain_figures(history.records, history.policies, RULES).values()
        seen |= {f"{name} above 1" for arm in figures for name in ("ready", "equal", "longest")}
    assert seen >= {
        "SchedulerClaimed",
        "GroupAdmitted",
        "GroupReady",
        "GroupDropped",
        "GroupConsumed",
        "StepSkipped",
        "WeightsPublished",
        "ready above 1",
        "equal above 1",
    }
