"""A policy that is served and not trained, beside one that is: its roles, and what is not its."""

from dataclasses import replace
from functools import reduce

import pytest

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.decisions.decide import View, decide, finished
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES
from seamlessflow.scheduler.settings import RunSection, SchedulerSection
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat, weights
from tests.builders.scheduler.inputs import (
    BOTH,
    fleet_of,
    joined_both,
    rules_for,
    scheduler_settings,
)

JUDGE = "judge"
RUN = RunSection(policy="main", policies=("main",), frozen={JUDGE: None}, steps=1)
BEGUN: list[Record] = [
    control.claimed(),
    *joined_both("w0"),
    control.joined("w1", "rollout", tags=("rollout",)),
    control.published(0, policy="main"),
    control.published(0, policy=JUDGE),
]
SERVED = [
    control.assigned("w0", "rollout", 0, slot=0, policy="main"),
    control.acquired("w0", "rollout", 0, slot=0, policy="main", at_ms=1),
    control.assigned("w1", "rollout", 1, slot=1, policy=JUDGE),
    control.acquired("w1", "rollout", 1, slot=1, policy=JUDGE, at_ms=1),
]


def fold(*records: Record) -> State:
    return reduce(state.apply, records, State.of_run(RUN.all_policies, RUN.frozen))


def decided(current: State, strategy: str = "multiplexed") -> list[Record]:
    beats = [
        *(heartbeat("w0", process, BOTH, policy="main") for process in BOTH),
        heartbeat("w1", "rollout", ("rollout",), policy=JUDGE),
    ]
    settings = scheduler_settings(RUN, SchedulerSection(policy=strategy))
    fleet = replace(fleet_of(*beats), weights={JUDGE: weights(policy=JUDGE)})
    return [record for _, record in decide(View(current, fleet), rules_for(settings), 2)]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_its_workers_roll_out_whatever_the_strategy_is(strategy: str) -> None:
    roles = {
        record.worker: (record.policy, record.role)
        for record in decided(fold(*BEGUN), strategy)
        if isinstance(record, r.RoleAssigned)
    }
    assert roles["w1"] == (JUDGE, "rollout")


def test_its_weights_are_no_version_of_the_policy_that_is_trained() -> None:
    current = fold(*BEGUN, control.published(5, policy=JUDGE, step=40))
    assert (current.first.steps.version, current.first.steps.trained) == (0, 0)
    assert len(current.by_policy) == 1


def test_groups_begin_once_it_has_an_engine_too() -> None:
    settings = scheduler_settings(RUN)
    source = rules_for(settings).tasks.training
    assert source is not None
    assert pacing.admissions(fold(*BEGUN, *SERVED[:2]), settings, source, 2) == []
    assert pacing.admissions(fold(*BEGUN, *SERVED), settings, source, 2)


def test_the_time_of_agents_stands_while_it_has_no_engine() -> None:
    current = fold(*BEGUN, *SERVED)
    assert current.serving.served_ms(1, 101) == 100
    released = control.released("w1", "rollout", 1, at_ms=51)
    assert fold(*BEGUN, *SERVED, released).serving.served_ms(1, 101) == 50


def test_groups_hold_credits_of_the_trained_policy_alone_and_end_with_it() -> None:
    group = control.admitted("run-0", policy="main")
    current = fold(*BEGUN, *SERVED, group)
    assert len(current.uncounted) == 1
    current = fold(*BEGUN, *SERVED, group, control.dropped("run-0", policy="main"))
    assert not current.uncounted
    assert not current.first.ledger.groups


def test_the_run_ends_with_the_steps_of_the_trained_policy() -> None:
    current = fold(*BEGUN, *SERVED, control.finished(1, policy="main"))
    assert finished(current, scheduler_settings(RUN))
    assert decided(current) == []
