"""Statistics by arm: what counts, how often, and how much of it is left some steps later."""

from typing import Any

import pytest

from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.arms import NO_ARM, Arm, Arms, PassCounting, arm_hash
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control

TASK = "task:task-0"
SOURCE = "source:train"
END = 1_000
"""End of `control` in these tests."""


def folded(
    *records: Record, arms: Arms | None = None, start: State | None = None, first: int = 0
) -> Arms:
    """Return the statistics after these records, the first of which has the offset `first`."""
    arms = arms or Arms()
    present = start or State()
    for offset, record in enumerate(records, first):
        arms.apply(present, record, offset)
        present = control_state.apply(present, record)
    return arms


def admitted(group: str = "g", task: str = "task-0", **changes: Any) -> r.GroupAdmitted:
    return control.admitted(group, task, **{"split": "train", **changes})


def ready(group: str = "g", *returns: float, **changes: Any) -> r.GroupReady:
    turns = changes.pop("turns", (1,) * len(returns))
    return control.ready(group, returns=returns, turns=turns, **changes)


def result(group: str, *returns: float, **changes: Any) -> list[Record]:
    """Return a group that gets ready and is trained."""
    return [admitted(group), ready(group, *returns, **changes), control.consumed(group)]


def trained(step: int) -> r.WeightsPublished:
    return control.published(step, step=step)


def snapshot(name: str = TASK, offset: int = 0, epoch: int = 1, **fields: Any) -> r.ArmSnapshot:
    made = folded(admitted(), ready("g", 1.0, 0.0))
    made.changed = {TASK}
    (usual,) = made.snapshots(epoch, offset)
    return r.ArmSnapshot(**{**vars(usual), "arm": name, **fields})


def test_a_group_counts_for_its_task_its_source_and_its_pools() -> None:
    arms = folded(admitted(arms=("pool:level:1",)), ready("g", 1.0, 0.0, 0.0))
    for name in (TASK, SOURCE, "pool:level:1"):
        arm = arms.arm(name)
        assert (arm.passed, arm.failed, arm.draws, arm.ready) == (1, 2, 1, 1), name
    assert set(arms.by_name) == arms.changed == {TASK, SOURCE, "pool:level:1"}


def test_a_fork_counts_for_the_source_of_forks() -> None:
    arms = folded(admitted(parent_session="s"), ready("g", 1.0))
    assert set(arms.by_name) == {TASK, "source:train/forks"}


def test_an_arm_that_was_never_drawn_is_empty_by_name_and_by_key() -> None:
    arms = folded(*result("a", 1.0, 0.0))
    assert arms.arm("task:other") == arms.by_key(arm_hash("task:other")) == NO_ARM
    assert arms.by_key(arm_hash(TASK)) == arms.arm(TASK) != NO_ARM


def test_a_pass_is_a_return_of_at_least_the_setting() -> None:
    returns = (1.0, 0.5, 0.49, -2.0, 7.0)
    for passes, passed in ((1.0, 2), (0.5, 3), (8.0, 0), (-2.0, 5)):
        arms = folded(*result("a", *returns), arms=Arms(PassCounting(passes=passes)))
        arm = arms.arm(TASK)
        assert (arm.last_passed, arm.last_counted, arm.passed) == (passed, 5, passed)


def test_counts_fade_with_each_trained_step_and_no_further() -> None:
    arms = folded(trained(3), *result("a", 1.0, 0.0, 0.0, 0.0))
    arm = arms.arm(TASK)
    assert arm.at_step == 3
    assert arm.counts(3, 0.9) == (1, 3)
    assert arm.counts(5, 0.9) == pytest.approx((0.81, 2.43))
    assert arm.counts(2, 0.9) == (1, 3), "steps that are trained again"


def test_skipped_steps_are_not_trained_ones() -> None:
    arms = folded(trained(1), control.skipped(1), trained(3), *result("a", 1.0))
    assert arms.arm(TASK).at_step == 2


def test_an_arm_fades_at_each_further_result_of_its_own_too_a_pool_less() -> None:
    counting = PassCounting(memory=0.5, own_memory=0.25)
    arms = folded(
        *result("a", 1.0, 1.0, 0.0), trained(2), *result("b", 0.0, 0.0), arms=Arms(counting)
    )
    # 2 passed and 1 failed, two steps ago: a quarter, and a part of that.
    for name, kept in ((TASK, 0.25), (SOURCE, 0.97)):
        left = kept / 4
        assert arms.arm(name).counts(2, 0.5) == pytest.approx((2 * left, 2 + left))


def test_results_of_other_tasks_leave_a_task_alone() -> None:
    before = folded(*result("a", 1.0, 0.0)).arm(TASK)
    other = [admitted("b", "task-1"), ready("b", 0.0, 0.0)]
    arms = folded(*result("a", 1.0, 0.0), *other)
    assert arms.arm(TASK) == before
    assert arms.arm("task:task-1").failed == 2


def test_equal_groups_in_a_row_are_counted_from_the_newest_back() -> None:
    equal = []
    records: list[Record] = []
    for number, returns in enumerate(
        [(0.3, 0.3), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0 + 1e-9), (1.0,)]
    ):
        records += result(f"g{number}", *returns)
        equal.append(folded(*records).arm(TASK).equal)
    assert equal == [1, 2, 0, 1, 0], "a single return is equal to nothing"


def test_whole_groups_that_passed_or_failed_are_counted() -> None:
    arms = folded(
        *result("a", 1.0, 1.0), *result("b", 0.0, 0.5), *result("c", 1.0, 0.0), *result("d", 2.0)
    )
    arm = arms.arm(SOURCE)
    assert (arm.ready, arm.won, arm.lost, arm.draws) == (4, 2, 1, 4)


def test_the_longest_session_that_passed_is_kept() -> None:
    arms = folded(*result("a", 1.0, 0.0, 1.0, turns=(3, 9, 4)), *result("b", 1.0, turns=(2,)))
    assert arms.arm(TASK).longest == 4
    assert folded(*result("a", 0.0, 0.5, turns=(3, 9))).arm(TASK).longest == 0


def test_the_figures_of_the_newest_choice_are_kept_beside_older_ones_of_other_names() -> None:
    first = admitted("a", sampler_figures={"pass": 1.0, "place": 3.0})
    again = admitted("b", sampler_figures={"place": 5.0, "rate": 0.5})
    assert folded(first, again).arm(SOURCE).figures == {"pass": 1.0, "place": 5.0, "rate": 0.5}


def test_evaluations_do_not_count() -> None:
    evaluated = admitted("e", purpose="eval")
    assert folded(evaluated, ready("e", 1.0, 1.0)).by_name == {}
    assert folded(*result("a", 0.0), evaluated, ready("e", 1.0)).arm(TASK).passed == 0


def test_groups_from_elsewhere_do_not_count() -> None:
    assert folded(ready("g", 1.0)).by_name == {}


def test_a_dropped_group_was_drawn_and_has_no_result() -> None:
    arms = folded(admitted(), control.dropped("g", "filtered"), ready("g", 1.0))
    assert arms.arm(TASK) == Arm(draws=1)


def test_repeated_records_count_once() -> None:
    wanted = folded(admitted(), ready("g", 1.0, 0.0))
    arms = folded(admitted(), admitted(), ready("g", 1.0, 0.0), ready("g", 1.0, 0.0))
    assert arms.by_name == wanted.by_name


def test_decisions_of_an_older_epoch_do_not_count_and_its_groups_do() -> None:
    records: list[Record] = [
        control.claimed(1),
        admitted("a", epoch=1),
        control.claimed(2),
        admitted("late", "task-1", epoch=1),
        ready("late", 1.0),
        ready("a", 1.0, 0.0),
    ]
    arms = folded(*records)
    assert arms.arm(TASK).ready == 1
    assert arms.arm("task:task-1") == NO_ARM


def test_a_group_of_two_policies_counts_once_with_its_first_result() -> None:
    run = State.of_run(("a", "b"))
    arms = folded(
        admitted(),
        ready("g", 1.0, 0.0, policy="b"),
        ready("g", 0.0, 0.0, 0.0, policy="a"),
        start=run,
    )
    arm = arms.arm(TASK)
    assert (arm.draws, arm.ready, arm.passed, arm.failed) == (1, 1, 1, 1)


def test_a_group_that_a_policy_dropped_counts_with_the_result_of_the_other() -> None:
    dropped = [control.dropped("g", policy=name) for name in "ab"]
    returns = ready("g", 1.0, policy="b")
    run = State.of_run(("a", "b"))
    assert folded(admitted(), dropped[0], returns, start=run).arm(TASK).passed == 1
    assert folded(admitted(), *dropped, returns, start=run).arm(TASK).ready == 0


def test_steps_of_the_first_policy_let_counts_fade() -> None:
    run = State.of_run(("a", "b"))
    steps = [
        control.published(1, step=1, policy="a"),
        control.published(2, step=2, policy="b"),
        control.published(3, step=3, policy="b"),
    ]
    assert folded(*steps, admitted(), ready("g", 1.0, policy="b"), start=run).arm(TASK).at_step == 1


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"passed": 2, "sessions": ("a", "b", "c"), "reward_std": 0.4}, (2, 1, 0, 0)),
        ({"passed": 3, "sessions": ("a", "b", "c"), "reward_std": 0.0}, (3, 0, 1, 0)),
        ({"passed": 1, "sessions": ("a",), "reward_std": 0.0}, (1, 0, 0, 0)),
    ],
)
def test_a_record_of_an_older_release_counts_by_its_passes(
    fields: dict[str, Any], counts: tuple[int, ...]
) -> None:
    arm = folded(admitted(), control.ready("g", **fields)).arm(TASK)
    assert (arm.passed, arm.failed, arm.equal, arm.longest) == counts


@pytest.mark.parametrize("fields", [{}, {"sessions": ("a",)}, {"passed": 1}])
def test_a_record_of_an_older_release_without_passes_is_no_result(fields: dict[str, Any]) -> None:
    assert folded(admitted(), control.ready("g", **fields)).arm(TASK) == Arm(draws=1)


def test_returns_without_turns_leave_the_longest_session_unknown() -> None:
    assert folded(admitted(), ready("g", 1.0, turns=())).arm(TASK).longest == 0


def test_an_arm_read_from_its_topic_takes_no_record_that_it_covers() -> None:
    records = [*result("a", 1.0, 0.0), *result("b", 1.0, 1.0)]
    whole = folded(*records)
    written = {s.arm: s for s in folded(*records[:4]).snapshots(1, 3)}
    arms = Arms()
    arms.restore(written[TASK], END)
    assert folded(*records, arms=arms).by_name == whole.by_name
    assert arms.changed == {TASK, SOURCE}


def test_of_two_records_of_an_arm_that_with_the_newest_offset_counts() -> None:
    older, newer = (snapshot(offset=o, epoch=e, draws=d) for o, e, d in ((5, 2, 5), (9, 1, 9)))
    for order in ([older, newer], [newer, older]):
        arms = Arms()
        for each in order:
            arms.restore(each, END)
        assert arms.arm(TASK).draws == 9


def test_a_record_from_an_earlier_log_is_not_taken() -> None:
    arms = Arms()
    arms.restore(snapshot(offset=END), END)
    assert arms.arm(TASK) == NO_ARM
    arms.restore(snapshot(offset=END - 1), END)
    assert arms.arm(TASK) != NO_ARM


def test_arms_that_changed_are_written_once_with_all_their_figures() -> None:
    arms = folded(admitted(sampler_figures={"rate": 0.5}), ready("g", 1.0, 0.0, turns=(4, 2)))
    written = list(arms.snapshots(3, 17))
    assert [(each.arm, each.epoch, each.control_offset) for each in written] == [
        (SOURCE, 3, 17),
        (TASK, 3, 17),
    ]
    again = Arms()
    for each in written:
        again.restore(each, END)
    assert again.by_name == arms.by_name
    arms.note_written(3)
    assert list(arms.snapshots(3, 18)) == []


def test_older_records_of_an_arm_are_replaced_once_a_newer_one_is_written() -> None:
    arms = Arms()
    for epoch in (1, 2):
        arms.restore(snapshot(offset=epoch, epoch=epoch), END)
    assert list(arms.replaced(3)) == [], "nothing of it changed"
    folded(admitted(), arms=arms, first=50)
    assert list(arms.replaced(3)) == [(1, TASK), (2, TASK)]
    arms.note_written(3)
    folded(admitted("b"), arms=arms, first=60)
    assert list(arms.replaced(3)) == []
    assert list(arms.replaced(4)) == [(3, SOURCE), (3, TASK)]
