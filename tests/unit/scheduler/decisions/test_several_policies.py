"""A run of several policies: each has its own gang, steps and credits; groups are for all."""

from functools import reduce

from seamlessflow.scheduler.decisions import group_credits, pacing, stalls
from seamlessflow.scheduler.decisions.decide import Outgoing, View, decide, finished
from seamlessflow.scheduler.settings import RunSection, SchedulerSection
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.state import State, from_json, to_json
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat
from tests.builders.scheduler.inputs import (
    BOTH,
    fleet_of,
    joined_both,
    rules_for,
    scheduler_settings,
    task_source,
)

RUN = RunSection(policy="a", policies=("a", "b"), groups_per_step=2, lag=0, steps=1, group_size=2)
SETTINGS = scheduler_settings(RUN, SchedulerSection(min_dwell_s=0))
GROUPS = ("run-0", "run-1")
BEGUN: list[Record] = [
    control.claimed(),
    *(record for name in ("wa", "wb") for record in joined_both(name)),
    *(control.published(0, policy=policy) for policy in ("a", "b")),
]
ROLLING: list[Record] = [
    *BEGUN,
    *(
        record
        for number, policy in enumerate(("a", "b"))
        for record in (
            control.assigned(f"w{policy}", "rollout", number, slot=number, policy=policy),
            control.acquired(f"w{policy}", "rollout", number, slot=number, policy=policy),
        )
    ),
]
ADMITTED = [control.admitted(name, policy="a") for name in GROUPS]


def fold(*records: Record) -> State:
    return reduce(state.apply, records, State.of_run(RUN.all_policies))


def ready(policy: str) -> list[Record]:
    records = [control.ready(name, policy=policy) for name in GROUPS]
    return [*records, control.batch_ready(0, policy=policy)]


def trained(policy: str) -> list[Record]:
    return [
        control.committed(0, GROUPS, policy=policy),
        control.published(1, policy=policy),
        control.completed(0, policy=policy),
    ]


def decided(current: State) -> list[Outgoing]:
    beats = [
        heartbeat(f"w{policy}", process, BOTH, policy=policy)
        for policy in ("a", "b")
        for process in BOTH
    ]
    return decide(View(current, fleet_of(*beats)), rules_for(SETTINGS), 0)


def free(*records: Record) -> int:
    return group_credits.free_credits(fold(*ROLLING, *ADMITTED, *records), SETTINGS, 0)


def test_each_policy_gets_its_own_workers_with_numbers_gangs_and_slots_of_their_own() -> None:
    first = [record for _, record in decided(fold(*BEGUN)) if isinstance(record, r.RoleAssigned)]
    assert [
        (assignment.worker, assignment.policy, assignment.assignment, assignment.slot)
        for assignment in first
    ] == [
        ("wa", "a", 0, 0),
        ("wb", "b", 1, 1),
    ]

    both = fold(*ROLLING, *ADMITTED, *ready("a"), *ready("b"))
    gangs = [record for _, record in decided(both) if isinstance(record, r.RoleAssigned)]
    assert [
        (assignment.worker, assignment.policy, assignment.role, assignment.gang_epoch)
        for assignment in gangs
    ] == [
        ("wa", "a", "train", 1),
        ("wb", "b", "train", 2),
    ]


def test_a_policy_trains_while_the_other_goes_on_rolling_out() -> None:
    current = fold(*ROLLING, *ADMITTED, *ready("b"))
    taken = control.assigned("wb", "train", 2, gang_epoch=1, policy="b")
    current = reduce(state.apply, [taken, control.acquired("wb", "train", 2)], current)

    (start,) = [record for _, record in decided(current) if isinstance(record, r.StepStarted)]
    assert (start.policy, start.workers, start.step) == ("b", ("wb",), 0)
    assert current.workers["wa"].role == "rollout"


def test_a_credit_returns_after_the_last_policy_has_trained_or_dropped_its_group() -> None:
    two_steps = scheduler_settings(RUN.model_copy(update={"steps": 2}))

    def free_with(*records: Record) -> int:
        return group_credits.free_credits(fold(*ROLLING, *ADMITTED, *records), two_steps, 0)

    assert free_with(*ready("a"), *ready("b")) == 0
    assert free_with(*ready("a"), *trained("a"), *ready("b")) == 0
    assert free_with(*trained("a"), *trained("b")) == 2
    assert free_with(*trained("a"), control.dropped("run-0", "filtered", policy="b")) == 1


def test_a_group_without_a_token_of_a_policy_is_no_loss_to_it() -> None:
    current = fold(*ADMITTED, control.dropped("run-0", "no_token", policy="b"))

    mine, others = current.by_policy
    assert set(mine.ledger.groups) == set(GROUPS)
    assert set(others.ledger.groups) == {"run-1"}
    assert (others.ledger.dropped, others.ledger.dropped_in_step) == (0, 0)


def test_a_policy_that_has_finished_holds_up_no_group() -> None:
    done = [*trained("a"), control.finished(1, policy="a")]
    assert free(*done) == 0, "the other one has its groups"
    assert free(*done, *(control.dropped(name, "no_token", policy="b") for name in GROUPS)) == 2


def test_the_run_has_finished_with_its_last_policy() -> None:
    current = fold(control.finished(1, policy="a"))
    assert not finished(current, SETTINGS)
    assert finished(state.apply(current, control.finished(1, policy="b")), SETTINGS)


def test_records_of_another_policy_than_those_of_the_run_change_nothing() -> None:
    current = fold(*ROLLING, *ADMITTED)
    assert state.apply(current, control.batch_ready(0, policy="c")) is current


def test_an_expired_group_is_told_once_for_all_policies() -> None:
    current = fold(*ADMITTED, control.dropped("run-0", "stale", policy="a"))
    expired = pacing.expirations(current, "a", 10**9)
    assert sorted(record.group_id for record in expired) == list(GROUPS)


def test_tasks_and_evaluations_follow_the_first_policy() -> None:
    current = fold(*ROLLING, control.published(3, policy="b"))
    source = task_source()
    (first, *_) = pacing.evaluations(current, SETTINGS, "test", source, 0)
    assert (first.version, first.policy) == (0, "a")

    evaluated = state.apply(current, first)
    assert [len(policy.ledger.groups) for policy in evaluated.by_policy] == [1, 0]


def test_a_stall_of_a_further_policy_names_it() -> None:
    current = fold(*ROLLING, *ADMITTED, *ready("a"), *ready("b"))
    stalled = stalls.of_all(current, SETTINGS, 10**9)
    assert [stall.what for stall in stalled] == ["gang", "gang b"]


def test_the_state_of_all_policies_is_stored() -> None:
    current = fold(*ROLLING, *ADMITTED, *ready("b"))
    assert from_json(to_json(current)) == current
