"""A run of several policies: each has its own gang, steps and credits; groups are for all."""

from functools import reduce

from seamlessflow.scheduler.decisions import pacing, stalls
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
    found = [control.ready(name, policy=policy) for name in GROUPS]
    return [*found, control.batch_ready(0, policy=policy)]


def trained(policy: str) -> list[Record]:
    return [
        control.committed(0, GROUPS, policy=policy),
        control.published(1, policy=policy),
        control.completed(0, policy=policy),
    ]


def decided(known: State) -> list[Outgoing]:
    beats = [
        heartbeat(f"w{policy}", process, BOTH, policy=policy)
        for policy in ("a", "b")
        for process in BOTH
    ]
    return decide(View(known, fleet_of(*beats)), rules_for(SETTINGS), 0)


def free(*records: Record) -> int:
    return pacing.free_credits(fold(*ROLLING, *ADMITTED, *records), SETTINGS, 0)


def test_each_policy_gets_its_own_workers_with_numbers_gangs_and_slots_of_their_own() -> None:
    first = [one for _, one in decided(fold(*BEGUN)) if isinstance(one, r.RoleAssigned)]
    assert [(one.worker, one.policy, one.assignment, one.slot) for one in first] == [
        ("wa", "a", 0, 0),
        ("wb", "b", 1, 1),
    ]

    both = fold(*ROLLING, *ADMITTED, *ready("a"), *ready("b"))
    gangs = [one for _, one in decided(both) if isinstance(one, r.RoleAssigned)]
    assert [(one.worker, one.policy, one.role, one.gang_epoch) for one in gangs] == [
        ("wa", "a", "train", 1),
        ("wb", "b", "train", 2),
    ]


def test_a_policy_trains_while_the_other_goes_on_rolling_out() -> None:
    known = fold(*ROLLING, *ADMITTED, *ready("b"))
    taken = control.assigned("wb", "train", 2, gang_epoch=1, policy="b")
    known = reduce(state.apply, [taken, control.acquired("wb", "train", 2)], known)

    (start,) = [one for _, one in decided(known) if isinstance(one, r.StepStarted)]
    assert (start.policy, start.workers, start.step) == ("b", ("wb",), 0)
    assert known.workers["wa"].role == "rollout"


def test_a_credit_returns_after_the_last_policy_has_trained_or_dropped_its_group() -> None:
    two_steps = scheduler_settings(RUN.model_copy(update={"steps": 2}))

    def free_with(*records: Record) -> int:
        return pacing.free_credits(fold(*ROLLING, *ADMITTED, *records), two_steps, 0)

    assert free_with(*ready("a"), *ready("b")) == 0
    assert free_with(*ready("a"), *trained("a"), *ready("b")) == 0
    assert free_with(*trained("a"), *trained("b")) == 2
    assert free_with(*trained("a"), control.dropped("run-0", "filtered", policy="b")) == 1


def test_a_group_without_a_token_of_a_policy_is_no_loss_to_it() -> None:
    known = fold(*ADMITTED, control.dropped("run-0", "no_token", policy="b"))

    mine, others = known.by_policy
    assert set(mine.ledger.groups) == set(GROUPS)
    assert set(others.ledger.groups) == {"run-1"}
    assert (others.ledger.dropped, others.ledger.dropped_in_step) == (0, 0)


def test_a_policy_that_has_finished_holds_up_no_group() -> None:
    done = [*trained("a"), control.finished(1, policy="a")]
    assert free(*done) == 0, "the other one has its groups"
    assert free(*done, *(control.dropped(name, "no_token", policy="b") for name in GROUPS)) == 2


def test_the_run_has_finished_with_its_last_policy() -> None:
    one = fold(control.finished(1, policy="a"))
    assert not finished(one, SETTINGS)
    assert finished(state.apply(one, control.finished(1, policy="b")), SETTINGS)


def test_records_of_another_policy_than_those_of_the_run_change_nothing() -> None:
    known = fold(*ROLLING, *ADMITTED)
    assert state.apply(known, control.batch_ready(0, policy="c")) is known


def test_an_expired_group_is_told_once_for_all_policies() -> None:
    known = fold(*ADMITTED, control.dropped("run-0", "stale", policy="a"))
    told = pacing.expirations(known, "a", 10**9)
    assert sorted(one.group_id for one in told) == list(GROUPS)


def test_tasks_and_evaluations_follow_the_first_policy() -> None:
    known = fold(*ROLLING, control.published(3, policy="b"))
    source = task_source()
    (first, *_) = pacing.evaluations(known, SETTINGS, "test", source, 0)
    assert (first.version, first.policy) == (0, "a")

    evaluated = state.apply(known, first)
    assert [len(one.ledger.groups) for one in evaluated.by_policy] == [1, 0]


def test_a_stall_of_a_further_policy_names_it() -> None:
    known = fold(*ROLLING, *ADMITTED, *ready("a"), *ready("b"))
    told = stalls.of_all(known, SETTINGS, 10**9)
    assert [one.what for one in told] == ["gang", "gang b"]


def test_the_state_of_all_policies_is_stored() -> None:
    known = fold(*ROLLING, *ADMITTED, *ready("b"))
    assert from_json(to_json(known)) == known
