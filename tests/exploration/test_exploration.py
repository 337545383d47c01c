"""The assignment protocol, explored: each state holds, and each leads on to its goal.

`scripts/explore` explores larger bounds.
"""

from dataclasses import replace

import pytest

from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.scheduler.decisions.snapshot import Snapshot
from seamlessflow.scheduler.decisions.strategies.wanted import Wanted
from tests.builders.records import control
from tests.exploration.bounds import Bounds
from tests.exploration.changes import rollouts
from tests.exploration.explorer import Counterexample, explore
from tests.exploration.faulty_roles import (
    ObeysTheDeposed,
    WaitsForNoTrainer,
    WaitsForTheDead,
)
from tests.exploration.opening import opening
from tests.exploration.rank_roles import RankRoles

MOST_STATES = 25_000
"""Enough for each of the bounds here, the largest of which take half a minute."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(),
        Bounds(strategy="multiplexed", crashes=1),
        Bounds(strategy="multiplexed", takeovers=1),
        Bounds(strategy="multiplexed", silences=1),
        Bounds(strategy="multiplexed", deadlines=1),
    ],
    ids=["no fault", "crash", "takeover", "silence", "deadline"],
)
def test_no_worker_holds_two_roles_and_every_state_leads_on(
    bounds: Bounds, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = explore(bounds, MOST_STATES)
    with capsys.disabled():
        print(f"\n{graph.states} states, {graph.transitions} transitions, {graph.open} left open")
    assert graph.goals or graph.open


def never_trains(snapshot: Snapshot) -> list[Wanted]:
    return [
        Wanted(worker=worker.name, role="rollout", reason="always")
        for worker in snapshot.workers
        if "rollout" in worker.able
    ]


def test_a_strategy_under_which_a_batch_waits_for_ever_is_noticed() -> None:
    with pytest.raises(Counterexample, match="lead nowhere, after\n"):
        explore(Bounds(strategy=f"{__name__}:never_trains"))


@pytest.mark.parametrize(
    ("bounds", "rollout", "trainer", "reason"),
    [
        (Bounds(), WaitsForNoTrainer, RankRoles, "both processes of worker"),
        (Bounds(takeovers=1), RolloutRoles, ObeysTheDeposed, "obeys epoch 1 behind a newer claim"),
        (Bounds(crashes=1), WaitsForTheDead, RankRoles, "both processes of worker"),
    ],
)
def test_a_fault_in_the_code_is_noticed(
    bounds: Bounds, rollout: type[RolloutRoles], trainer: type[RankRoles], reason: str
) -> None:
    bounds = replace(bounds, strategy="multiplexed")
    with pytest.raises(Counterexample, match=reason):
        explore(bounds, first=opening(bounds, rollout, trainer))


def test_a_process_that_lags_acts_behind_any_part_of_what_it_has_not_read() -> None:
    world = opening(Bounds(strategy="multiplexed"))
    roles = world.rollouts["b"].roles
    assert roles is not None
    fields = {"worker": "b", "incarnation": roles.incarnation, "slot": 0, "epoch": roles.epoch}
    for number, role in enumerate(("train", "rollout"), roles.assignment + 1):
        record = control.assigned(**{**fields, "role": role, "assignment": number})
        world.to_control(record, "scheduler")

    names = {name for name, _ in rollouts.usual(world) if name.startswith("rollout b")}
    assert names == {
        "rollout b reads RoleAssigned and begins Release",
        "rollout b reads RoleAssigned, RoleAssigned and begins Acquire",
    }
