"""Sessions of a run that has finished: closed after a grace, and those of others left alone."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.decisions import deadlines
from seamlessflow.consumers.trajectories.decisions.training import GRACE_MS, RunEnds
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control, fleet
from tests.builders.records.sessions import closed, opened
from tests.builders.trajectories.decisions import context, kinds
from tests.builders.trajectories.session_builder import SessionBuilder

OF_RUN = {"session_id": "run-3.1.0", "group_id": "run-3", "sample": 1, "attempt": 0}


def ends(*records: Record) -> RunEnds:
    run_ends = RunEnds()
    for record in records:
        run_ends.apply(record)
    return run_ends


def finished(policy: str = "p", at_ms: int = 1_000) -> r.RunFinished:
    return control.finished(5, policy=policy, at_ms=at_ms)


def session(**changes: Any) -> r.SessionOpened:
    return opened(**{"policy": "p", **OF_RUN, **changes})


def test_a_session_of_a_finished_run_is_closed_after_the_grace() -> None:
    run_ends = ends(control.admitted("run-3", at_ms=5), finished())
    built = SessionBuilder().apply(session(max_age_ms=10**7, max_idle_ms=10**7))
    due_ms = run_ends.due_ms(built.session.opened)

    assert due_ms == 1_000 + GRACE_MS == deadlines.due_ms(built.session, due_ms)
    early = context(now_ms=GRACE_MS + 999, run_ends=run_ends)
    assert deadlines.overdue(built.session, early).events == []
    due = context(now_ms=GRACE_MS + 1_000, run_ends=run_ends)
    events = deadlines.overdue(built.session, due).events
    assert kinds(events) == ["SessionClosed", "SessionFinalized"]
    assert isinstance(events[0], r.SessionClosed)
    assert (events[0].status, events[0].reason) == ("aborted", deadlines.RUN_FINISHED)


def test_a_manager_that_was_asked_to_end_waits_no_longer() -> None:
    run_ends = ends(finished())
    run_ends.grace_ms = 0
    assert run_ends.due_ms(session()) == 1_000


def test_a_session_that_was_opened_after_the_end_of_its_run_is_closed_too() -> None:
    assert ends(finished()).due_ms(session(at_ms=9_000)) is not None


@pytest.mark.parametrize(
    "other",
    [
        {"session_id": "of-a-service"},
        {"group_id": ""},
        {"purpose": "eval"},
        {"policy": "another"},
        {"policies": {"planner": "another"}},
    ],
)
def test_other_sessions_go_on(other: dict[str, Any]) -> None:
    assert ends(finished()).due_ms(session(**other)) is None


def test_a_run_goes_on_until_all_policies_have_finished_and_with_more_steps() -> None:
    both = session(policies={"planner": "q"})
    admitted = control.admitted("run-4", at_ms=2_000)
    assert ends(finished(), admitted).due_ms(session()) is None
    assert ends(finished(), admitted, finished("q", 3_000)).due_ms(both) == 3_000 + GRACE_MS
    evaluated = control.admitted("eval5-0", at_ms=2_000, purpose="eval")
    assert ends(finished(), evaluated).due_ms(session()) is not None
    assert ends().due_ms(session()) is None


def test_a_session_waits_for_the_policies_that_play_with_its_own() -> None:
    roles = tuple(
        r.EpisodeRole(role=policy, policy=policy, group_id=f"run-3-{policy}")
        for policy in ("p", "q", "rival")
    )
    frozen = fleet.weights(policy="rival", frozen=True)
    begun = (frozen, control.admitted("run-3-p", at_ms=5, role="p", roles=roles))
    assert ends(*begun, finished()).due_ms(session()) is None
    both = ends(*begun, finished(), finished("q", 3_000))
    assert both.due_ms(session()) == both.due_ms(session(policy="rival")) == 3_000 + GRACE_MS


def test_a_closed_session_that_waits_for_a_reward_keeps_its_own_deadline() -> None:
    built = SessionBuilder().apply(
        session(), closed(session_id="run-3.1.0", await_reward_until_ms=9_000)
    )
    assert deadlines.due_ms(built.session, 1_000) == 9_000


def test_a_policy_that_is_not_trained_is_not_waited_for() -> None:
    with_judge = session(policies={"referee": "judge"})
    assert ends(finished()).due_ms(with_judge) is None
    frozen = fleet.weights(policy="judge", frozen=True)
    assert ends(frozen, finished()).due_ms(with_judge) == 1_000 + GRACE_MS
    both = session(policies={"referee": "judge", "planner": "q"})
    assert ends(frozen, finished()).due_ms(both) is None


def test_the_judges_of_a_run_end_with_it_and_a_person_may_still_reward() -> None:
    run_ends = ends(control.admitted("run-3", at_ms=5), finished())
    due_ms = 1_000 + GRACE_MS
    wait = {"session_id": "run-3.1.0", "await_reward_until_ms": 10**9}
    waits = [closed(**wait, judges=judges, await_rewards=("kind",)) for judges in (("kind",), ())]
    judged, by_person = (SessionBuilder().apply(session(), end).session for end in waits)

    assert deadlines.due_ms(judged, due_ms) == due_ms
    assert deadlines.due_ms(by_person, due_ms) == 10**9
    due = context(now_ms=due_ms, run_ends=run_ends)
    assert deadlines.overdue(by_person, due).events == []
    (end,) = deadlines.overdue(judged, due).events
    assert isinstance(end, r.SessionFinalized) and end.reason == "judge_failed"
