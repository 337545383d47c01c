"""Groups and the steps that trained them."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import ParentPlace, Record, StepGroup
from seamlessflow.schemas.topics import CONTROL, SESSIONS
from tests.builders.auditing.audited_log import AuditedLog, trajectory
from tests.builders.records import control, sessions
from tests.builders.records.forks import forked


def admitted(*groups: str) -> list[Record]:
    return [control.admitted(group) for group in groups]


def audited(*records: Record) -> AuditedLog:
    return AuditedLog().put(*records).settle()


def test_a_group_is_open_then_trained_or_dropped() -> None:
    log = audited(*admitted("g", "h", "i"))
    assert log.counts("groups") == (0, 3, 0, 0)

    log.put(control.committed(0, ["g"]), control.consumed("g", 0), control.dropped("h")).settle()
    assert log.counts("groups") == (2, 1, 0, 0)


def test_a_group_in_two_steps_is_a_violation() -> None:
    log = audited(*admitted("g"), control.committed(0, ["g"]), control.committed(1, ["g"]))

    assert "control[0]@2: group g is in step 2 and in [1]" in log.details("groups")
    assert not log.report.clean


def test_a_group_in_a_later_step_is_found_in_a_later_round() -> None:
    log = audited(*admitted("g"), control.committed(0, ["g"])).put(control.committed(1, ["g"]))
    assert log.settle().details("groups") == ["control[0]@2: group g is in step 2 and in [1]"]


def test_a_group_twice_in_one_step_is_a_violation() -> None:
    assert audited(*admitted("g"), control.committed(0, ["g", "g"])).counts("groups")[3] == 2


def again(group: str, reused: int) -> StepGroup:
    return StepGroup(group_id=group, reused=reused)


def test_a_group_that_a_later_step_trains_again_by_plan_is_no_violation() -> None:
    steps = [control.committed(number, [again("g", number)]) for number in range(3)]
    log = audited(*admitted("g"), *steps)
    assert log.counts("groups") == (1, 0, 0, 0)


def test_a_group_marked_with_a_wrong_number_of_steps_is_a_violation() -> None:
    log = audited(
        *admitted("g"), control.committed(0, ["g"]), control.committed(1, [again("g", 2)])
    )
    assert log.details("groups") == [
        "control[0]@2: group g is in step 2, marked as trained by 2 steps before, and 1 did"
    ]
    unknown = audited(*admitted("g"), control.committed(0, [again("g", 1)]))
    assert "marked as trained by 1 steps before, and 0 did" in unknown.details("groups")[0]


def test_a_step_executed_again_trains_the_same_groups_by_plan_once_more() -> None:
    log = audited(
        *admitted("g", "h"),
        control.committed(0, ["g"]),
        control.committed(1, ["h", again("g", 1)]),
        control.committed(1, ["h", again("g", 1)], lineage="b", parent_lineage="a", version=3),
    )
    assert log.counts("groups") == (2, 0, 0, 0)


def test_a_step_executed_again_trains_its_groups_again() -> None:
    log = audited(
        *admitted("g", "h"),
        *(control.committed(step, [group]) for step, group in enumerate("gh")),
        control.consumed("g", 0),
        control.consumed("h", 1),
        control.committed(0, ["g"], lineage="b", version=3),
    )
    assert log.counts("groups") == (1, 1, 0, 0)

    log.put(control.committed(1, ["h"], lineage="b", version=4)).settle()
    assert log.counts("groups") == (2, 0, 0, 0)


def test_a_group_that_a_new_lineage_left_out_is_a_violation() -> None:
    log = audited(
        *admitted("g", "h"),
        control.committed(0, ["g", "h"]),
        control.committed(0, ["h"], lineage="b", version=2),
    )
    [violation] = log.details("groups")
    assert violation == (
        "control[0]@2: 1 groups of step 1 of lineage a are in no step of the lineage that "
        "replaced it"
    )


def test_a_dropped_group_is_not_trained_and_has_a_reason() -> None:
    log = audited(*admitted("g"), control.dropped("g"), control.committed(0, ["g"]))
    assert log.counts("groups")[3] == 1
    assert audited(*admitted("g"), control.dropped("g", "")).counts("groups")[3] == 1


def test_a_group_that_a_surviving_step_trained_is_not_dropped_afterwards() -> None:
    log = audited(*admitted("g"), control.committed(0, ["g"]), control.dropped("g"))
    assert log.details("groups") == ["control[0]@2: group g is dropped, although a step trained it"]
    late = audited(*admitted("g"), control.committed(0, ["g"])).put(control.dropped("g")).settle()
    assert late.counts("groups")[3] == 1


def test_a_group_is_consumed_in_the_step_that_trained_it() -> None:
    log = audited(*admitted("g"), control.committed(0, ["g"]), control.consumed("g", 1))
    assert log.details("groups")[0].startswith("control[0]@2: group g is consumed in step 2")


def test_a_group_that_was_never_admitted_is_not_trained() -> None:
    assert audited(control.committed(0, ["g"])).counts("groups")[3] == 1


@pytest.mark.parametrize("group", ["", "own"])
def test_a_group_of_sessions_that_an_agent_opened_by_itself_is_not_admitted(group: str) -> None:
    name = group or "s"
    log = AuditedLog().put(control.committed(0, [name]), control.consumed(name, 0))
    # The topics are read in any order.
    log.put(sessions.opened(group_id=group, task_id="mine")).settle()
    assert log.counts("groups") == (1, 0, 0, 0)

    log.put(control.committed(1, [name])).settle()
    assert log.details("groups") == [f"control[0]@2: group {name} is in step 2 and in [1]"]


def test_a_group_of_a_task_of_pacing_is_admitted() -> None:
    name = session_id("g", 0, 0)
    log = audited(sessions.opened(session_id=name, group_id="g"), control.committed(0, ["g"]))
    assert log.details("groups") == [
        "control[0]@0: group g is in step 1, but was never admitted, and no agent opened it by "
        "itself"
    ]


def test_a_session_of_an_evaluation_is_no_group_to_train() -> None:
    log = audited(sessions.opened(purpose="eval"), control.committed(0, ["s"]))
    assert log.counts("groups")[3] == 1


def test_a_group_whose_session_may_have_been_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut(SESSIONS.name).put(control.committed(0, ["s"])).settle()
    assert log.counts("groups")[2:] == (1, 0)


def test_a_group_whose_admission_was_removed_cannot_be_checked() -> None:
    log = AuditedLog().cut(CONTROL.name).put(control.consumed("f", 7))
    log.put(control.committed(8, ["g"])).settle()
    assert log.counts("groups")[2:] == (2, 0)


def test_a_group_of_an_evaluation_is_over_when_it_is_ready() -> None:
    log = audited(control.admitted("e", purpose="eval"))
    assert log.counts("groups") == (0, 1, 0, 0)
    assert log.put(control.ready("e")).settle().counts("groups") == (1, 0, 0, 0)


EXPLORED = (
    control.claimed(),
    control.admitted("e", purpose="explore"),
    control.expired("e"),
    control.ready("e", sessions=("e.0.0", "e.1.0"), returns=(0.0, 1.0), texts=("a", "b")),
)


def again_of(*sessions: str, group: str = "g", **changes: Any) -> r.GroupAdmitted:
    seeds = tuple(r.SeedSession(session_id=name, text="a", value=0.0) for name in sessions)
    return control.admitted(group, explored="e", seeds=seeds, **changes)


def test_an_exploration_is_over_when_it_is_ready_and_may_be_sampled_again_once() -> None:
    assert audited(*EXPLORED[:3]).counts("groups") == (0, 1, 0, 0)
    once = audited(*EXPLORED, again_of("e.0.0", "e.1.0"))
    assert once.details("groups") == []
    late = control.claimed(epoch=2), again_of("e.0.0", group="g"), again_of("e.0.0", epoch=2)
    assert audited(*EXPLORED, *late).details("groups") == []
    (detail,) = once.put(again_of("e.0.0", group="h")).settle().details("groups")
    assert "group h samples e again, which is no ready exploration, or was sampled" in detail


def test_a_group_samples_sessions_of_its_own_exploration_again() -> None:
    (detail,) = audited(*EXPLORED, again_of("e.0.0", "other")).details("groups")
    assert "group g samples e again, of which session other is not" in detail


def test_a_step_must_not_train_an_exploration() -> None:
    log = audited(*EXPLORED, control.committed(0, ["e"]))
    assert "group e is in step 1, but was never admitted" in log.details("groups")[0]


def test_a_group_of_a_recording_is_trained_once_or_dropped() -> None:
    log = AuditedLog(recorded=True).put(*map(trajectory, "stu"), control.committed(0, ["s"]))
    log.put(control.dropped("t")).settle()
    assert log.counts("groups") == (2, 1, 0, 0)

    log.put(control.committed(1, ["s"]), control.committed(2, ["t"])).settle()
    assert log.details("groups") == [
        "control[0]@3: group t is in step 3, although it was dropped",
        "control[0]@2: group s is in step 2 and in [1]",
    ]


def test_a_group_that_was_never_recorded_is_not_trained() -> None:
    log = AuditedLog(recorded=True).put(control.committed(0, ["g"])).settle()
    assert log.details("groups") == [
        "control[0]@0: group g is in step 1, but was never admitted, and was never recorded"
    ]


def test_each_of_several_policies_trains_or_drops_a_group_once() -> None:
    first = [control.admitted("g", policy="a"), control.committed(0, ["g"], policy="a")]
    fields = {"policy": "b", "lineage": "b"}
    dropped = audited(*first, control.dropped("g", policy="b"), control.consumed("g", 0))
    assert dropped.counts("groups")[3] == 0
    trained = audited(*first, control.committed(0, ["g"], **fields))
    assert trained.counts("groups")[3] == 0

    twice = audited(*first, *(control.committed(step, ["g"], **fields) for step in range(2)))
    assert "control[0]@3: group g is in step 2 and in [1]" in twice.details("groups")


def test_a_group_of_a_role_is_that_of_its_policy_alone() -> None:
    groups = [
        control.admitted("g-one", policy="a", role="one"),
        control.admitted("g-two", policy="b", role="two"),
    ]
    log = audited(*groups)
    assert log.counts("groups")[1] == 2
    log.put(control.committed(0, ["g-one"], policy="a")).settle()
    log.put(control.committed(0, ["g-two"], policy="b", lineage="b")).settle()
    assert log.counts("groups")[1] == 0 and not log.details("groups")


PLACE = ParentPlace(session_id="parent", turn=2, first_offset=7, parent_return=1.0)


def going_on(session: str = "parent", parent_return: float | None = 1.0) -> Record:
    """Return the beginning of a session of group `g` that goes on from another."""
    prefix = forked()
    origin = replace(prefix.origin, session_id=session, parent_return=parent_return)
    name = session_id("g", 0, 0)
    fork = replace(prefix, origin=origin)
    return sessions.opened(session_id=name, group_id="g", fork=fork)


@pytest.mark.parametrize(
    ("begun", "violations"),
    [
        (going_on(), 0),
        (going_on(session="another"), 1),
        (going_on(parent_return=0.0), 1),
        (going_on(session="of-a-file", parent_return=None), 0),
    ],
)
def test_sessions_go_on_from_the_place_of_their_group(begun: Record, violations: int) -> None:
    log = audited(begun, control.admitted("g", fork_at=PLACE))
    assert log.counts("groups")[3] == violations
    assert log.settle().counts("groups")[3] == violations


def test_sessions_of_other_groups_have_no_parent() -> None:
    (detail,) = audited(going_on(), *admitted("g")).details("groups")
    assert "goes on from parent, return 1; its group was not admitted to" in detail
