"""The ledger of groups: each one ends once, and its credit returns."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.ledger import MOST_TRIES
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold


def test_a_ready_group_keeps_its_credit() -> None:
    ledger = fold(control.admitted("run-0"), control.ready("run-0")).first.ledger

    assert (ledger.running, ledger.ready, len(ledger.training)) == (0, 1, 1)


def test_a_dropped_group_returns_its_credit() -> None:
    assert not fold(control.admitted("run-0"), control.dropped("run-0")).first.ledger.groups


def test_a_trained_group_returns_its_credit_when_the_weights_are_out() -> None:
    before = fold(
        control.admitted("run-0"),
        control.ready("run-0"),
        control.committed(0, ["run-0"]),
        control.consumed("run-0"),
    )
    after = state.apply(before, control.published(1))

    assert (before.first.ledger.ready, len(before.first.ledger.training)) == (0, 1)
    assert (len(after.first.ledger.training), after.first.ledger.trained) == (0, 1)


def test_weights_of_an_earlier_step_return_no_credit() -> None:
    ledger = fold(
        control.admitted("run-0"), control.committed(1, ["run-0"]), control.published(1)
    ).first.ledger

    assert len(ledger.training) == 1


def test_a_group_consumed_without_a_step_returns_its_credit() -> None:
    assert not fold(control.admitted("run-0"), control.consumed("run-0")).first.ledger.groups


def test_a_step_executed_again_after_a_resume_trains_no_group_twice() -> None:
    ledger = fold(
        control.admitted("run-0"),
        control.committed(0, ["run-0"], version=1),
        control.published(1),
        control.committed(0, ["run-0"], version=2),
        control.consumed("run-0"),
        control.published(2),
    ).first.ledger

    assert ledger.trained == 1


def test_a_task_that_failed_outside_the_policy_is_to_be_tried_again() -> None:
    ledger = fold(
        control.admitted("run-0", "task-7"), control.dropped("run-0", "failed")
    ).first.ledger

    assert ledger.again == ("task-7",)


def test_trying_a_task_again_is_not_a_fresh_draw() -> None:
    ledger = fold(
        control.admitted("run-0", "task-7"),
        control.dropped("run-0", "failed"),
        control.admitted("run-1", "task-7"),
    ).first.ledger

    assert (ledger.again, ledger.drawn, ledger.admitted) == ((), 1, 2)


def test_a_task_that_always_fails_waits_for_its_next_turn() -> None:
    records: list[Record] = []
    for number in range(MOST_TRIES):
        records += [
            control.admitted(f"run-{number}", "task-7"),
            control.dropped(f"run-{number}", "failed"),
        ]

    ledger = fold(*records).first.ledger
    assert (ledger.again, dict(ledger.tries)) == ((), {})


def test_dropped_groups_are_counted_anew_in_each_step() -> None:
    before = fold(control.admitted("run-0"), control.dropped("run-0"))

    assert before.first.ledger.dropped_in_step == 1
    assert state.apply(before, control.completed()).first.ledger.dropped_in_step == 0


def test_an_evaluation_takes_no_credit_and_ends_when_it_is_ready() -> None:
    before = fold(control.admitted("run-eval0-0", purpose="eval"))
    after = state.apply(before, control.ready("run-eval0-0"))

    assert (len(before.first.ledger.training), before.first.ledger.admitted) == (0, 0)
    assert not after.first.ledger.groups


GROUPS = [f"run-{number}" for number in range(4)]
EVENTS = st.one_of(
    st.sampled_from(GROUPS).map(control.admitted),
    st.sampled_from(GROUPS).map(control.ready),
    st.sampled_from(GROUPS).map(control.consumed),
    st.tuples(st.sampled_from(GROUPS), st.sampled_from(["filtered", "failed"])).map(
        lambda pair: control.dropped(*pair)
    ),
    st.tuples(st.integers(0, 3), st.lists(st.sampled_from(GROUPS))).map(
        lambda pair: control.committed(*pair)
    ),
    st.integers(0, 5).map(control.published),
)


@given(st.lists(EVENTS, max_size=60))
def test_whatever_comes_no_credit_leaks(records: list[Record]) -> None:
    current = State()
    for record in records:
        current = state.apply(current, record)
        ledger = current.first.ledger
        assert ledger.admitted == ledger.trained + ledger.dropped + len(ledger.groups)
        waiting = sum(group.trained_version is not None for group in ledger.groups.values())
        assert ledger.running + ledger.ready + waiting == len(ledger.groups)
