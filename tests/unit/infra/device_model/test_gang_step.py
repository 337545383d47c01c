"""The step of a gang whose members wait for the slowest."""

from dataclasses import replace

import pytest

from seamlessflow.infra.device_model.gang_step import GangMember, gang_step
from seamlessflow.infra.device_model.rates import Rates

FAST = Rates(row_s=1, train_s=2, train_context_s=0.5)
LENGTHS = [4.0, 2.0]


def test_each_device_gets_an_equal_part_and_all_wait_for_the_slowest() -> None:
    slow = replace(FAST, train_s=20)
    members = {"a": GangMember(FAST, 2), "b": GangMember(FAST, 2), "c": GangMember(slow, 4)}

    step = gang_step(members, 8, LENGTHS, step_s=3)

    assert step.parts_s["a"] == step.parts_s["b"] == 3 + FAST.part(LENGTHS, 2, 8)
    assert step.slowest_s == step.parts_s["c"] == 3 + slow.part(LENGTHS, 4, 8)


def test_a_member_alone_computes_the_part_that_it_has_in_the_whole_gang() -> None:
    members = {"a": GangMember(FAST, 2), "b": GangMember(FAST, 6)}

    whole = gang_step(members, 8, LENGTHS, step_s=1)
    alone = [gang_step({name: member}, 8, LENGTHS, 1) for name, member in members.items()]

    assert max(step.slowest_s for step in alone) == pytest.approx(whole.slowest_s)
