"""Evaluations: a round is one version on one split, reported once, also after a resume."""

import json
from dataclasses import replace

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.data.figures.chances import USUAL, PassTerms
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.steps.evaluations import BEGIN_MS, GRACE_MS, Evaluations
from tests.builders.records import control


def admitted(group: str, version: int, split: str = "test") -> r.GroupAdmitted:
    return control.admitted(group, version=version, split=split, purpose="eval", deadline_ms=9)


def ready(group: str, reward: float, sessions: int = 1, passed: int = 0) -> r.GroupReady:
    return r.GroupReady(
        at_ms=0,
        group_id=group,
        sessions=tuple(f"{group}.{sample}" for sample in range(sessions)),
        reward_mean=reward,
        reward_std=0,
        trainable_tokens=0,
        passed=passed,
    )


def folded(*records: Record) -> ControlState:
    state = ControlState("policy")
    for offset, record in enumerate(records):
        state.apply(record, offset)
    return state


ROUND = (
    control.published(4, step=3),
    admitted("e-0", 4),
    admitted("e-1", 4),
    admitted("e-2", 4),
)


def test_all_sessions_of_a_round_are_one_result() -> None:
    results = [ready("e-0", 1.0, 3), ready("e-1", 0.0), control.dropped("e-2")]
    state = folded(*ROUND, *results[:2])
    evaluations = Evaluations(state, {"test": USUAL})
    assert evaluations.completed(7) == [], "a group is still under way"
    state.apply(results[2], 9)
    (report,) = evaluations.completed(7)
    assert (report.version, report.step, report.split) == (4, 3, "test")
    assert (report.groups, report.sessions, report.reward_mean) == (3, 4, 0.75)
    assert evaluations.completed(8) == []


def test_versions_and_splits_are_rounds_of_their_own() -> None:
    state = folded(
        *(admitted("a", 4), admitted("b", 4, "hard"), admitted("c", 5)),
        *(ready("a", 1.0), ready("b", 0.25), ready("c", 0.5)),
    )
    reports = Evaluations(state, {"test": USUAL}).completed(7)
    assert [(report.version, report.split, report.reward_mean) for report in reports] == [
        (4, "hard", 0.25),
        (4, "test", 1.0),
        (5, "test", 0.5),
    ]


def test_a_trainer_that_resumes_reports_what_ended_while_it_was_away_and_nothing_twice() -> None:
    state = folded(*ROUND, ready("e-0", 1.0))
    resumed = ControlState.from_json(state.to_json())
    for offset, record in enumerate([ready("e-1", 0.0), ready("e-2", 0.5)]):
        resumed.apply(record, offset)
    (report,) = Evaluations(resumed, {"test": USUAL}).completed(7)
    assert report.reward_mean == 0.5
    resumed.apply(report, 9)
    assert Evaluations(resumed, {"test": USUAL}).completed(8) == []


def test_the_run_waits_for_the_evaluation_of_its_last_version() -> None:
    state = folded(control.published(4, step=3))
    evaluations = Evaluations(state, {"test": USUAL})
    assert evaluations.under_way(4, 100)
    for offset, record in enumerate([admitted("e", 4), ready("e", 1.0)]):
        assert evaluations.under_way(4, 100)
        state.apply(record, offset)
    assert evaluations.under_way(4, 100), "it is over, but not reported"
    evaluations.completed(100)
    assert not evaluations.under_way(4, 100)
    assert not Evaluations(state, {}).under_way(5, 100)


def test_no_evaluation_is_waited_for_without_end() -> None:
    evaluations = Evaluations(folded(), {"test": USUAL})
    assert evaluations.under_way(4, 100)
    assert not evaluations.under_way(4, 100 + BEGIN_MS)
    begun = Evaluations(folded(admitted("e", 4)), {"test": USUAL})
    assert begun.under_way(4, 0)
    assert not begun.under_way(4, 9 + GRACE_MS)


def test_a_round_has_its_error_and_its_chances_to_pass_also_after_a_resume() -> None:
    state = folded(*ROUND, ready("e-0", 0.5, 4, passed=2))
    resumed = ControlState.from_json(json.loads(json.dumps(state.to_json())))
    for offset, record in enumerate([ready("e-1", 0.0, 4, passed=0), ready("e-2", 1.0, 4, 4)]):
        resumed.apply(record, offset)
    (report,) = Evaluations(resumed, {"test": USUAL}).completed(7)
    assert (report.sessions, report.reward_mean) == (12, 0.5)
    # The error of the mean of three tasks' means, 0.5, 0 and 1.
    assert report.reward_error == pytest.approx(0.5 / 3**0.5)
    assert report.pass_at == pytest.approx({"1": 0.5, "2": (5 / 6 + 0 + 1) / 3, "4": 2 / 3})


def test_the_run_waits_for_the_last_evaluation_of_every_set() -> None:
    state = folded(control.published(4, step=3), admitted("e", 4, "easy"), ready("e", 1.0))
    evaluations = Evaluations(state, {"easy": USUAL, "hard": USUAL})
    evaluations.completed(0)
    assert evaluations.under_way(4, 100), "hard has not begun"
    for offset, record in enumerate([admitted("h", 4, "hard"), ready("h", 1.0)]):
        state.apply(record, offset)
        assert evaluations.under_way(4, 100)
    evaluations.completed(100)
    assert not evaluations.under_way(4, 100)


def test_each_set_is_counted_by_its_own_success_and_k_also_after_a_resume() -> None:
    groups = [
        replace(
            ready(name, 0.5, 2),
            returns=(0.0, 1.0),
            turns=(1, 3),
            lengths=(5, 7),
            prompt_tokens=(10, 30),
        )
        for name in ("a", "b")
    ]
    state = folded(admitted("a", 4), admitted("b", 4, "hard"), groups[0])
    resumed = ControlState.from_json(json.loads(json.dumps(state.to_json())))
    resumed.apply(groups[1], 3)
    sets = {"test": PassTerms(0.0, (2,)), "hard": PassTerms(0.75)}
    hard, test = Evaluations(resumed, sets).completed(7)
    assert (test.success, test.pass_at, test.pass_all) == (0.0, {"2": 1.0}, {"2": 1.0})
    assert (hard.success, hard.pass_at) == (0.75, {"1": 0.5, "2": 1.0})
    assert hard.pass_all == {"1": 0.5, "2": 0.0}
    assert 0 <= hard.pass_all_low["2"] < hard.pass_all_high["2"] <= 1
    assert (test.turns, test.sampled_tokens, test.prompt_tokens) == (2.0, 6.0, 20.0)
