"""A worker that several policies have in turns."""

from dataclasses import replace
from typing import Any

from seamlessflow.producers.rollout.roles.moves import Acquire, Load, Release
from seamlessflow.producers.rollout.roles.roles import RolloutRoles
from seamlessflow.schemas import records as r
from tests.builders.records import control, fleet
from tests.builders.records.prompts import INCARNATION, WORKER
from tests.builders.rollout.roles import policy


def published(version: int, name: str) -> r.WeightsPublished:
    place = {"directory": f"{name}{version}", "manifest_sha256": "sha"}
    return control.published(version, policy=name, **place)


def assigned(number: int, **changes: Any) -> r.RoleAssigned:
    return control.assigned(WORKER, "rollout", number, incarnation=INCARNATION, **changes)


def test_it_gives_up_its_turns_before_it_serves_another_policy() -> None:
    roles = RolloutRoles(WORKER, INCARNATION, policy="policy", loads_asleep=True, shared=True)
    for record in (
        fleet.heartbeat(WORKER, "rollout", incarnation=INCARNATION),
        *(published(4, name) for name in ("policy", "second")),
        *(replace(policy(4), policy=name) for name in ("policy", "second")),
        assigned(1, policy="policy", slot=4),
    ):
        roles.apply(record)
    first = roles.next_move()
    assert isinstance(first, Acquire) and first.policy.policy == "policy"
    roles.begin(first)
    assert roles.acquired(first)

    roles.apply(assigned(2, policy="second", slot=9))
    left = roles.next_move()
    assert left == Release(1), "the number of the assignment that it leaves, not of the new one"
    assert roles.policy == "policy"
    roles.begin(left)
    roles.released()

    second = roles.next_move()
    assert isinstance(second, Acquire)
    assert (second.assignment, second.slot, second.policy.policy) == (2, 9, "second")
    roles.begin(second)
    assert roles.acquired(second) and roles.policy == "second"
    assert roles.next_move() is None
    roles.apply(published(5, "policy"))
    assert roles.next_move() is None
    roles.apply(published(5, "second"))
    assert isinstance(roles.next_move(), Load)
