"""Rewards of the halves of a task that two policies learn, of the benchmark `halves`."""

from dataclasses import replace

from benchmarks.load.halves_agent import ANSWER, ASK
from benchmarks.scheduling.halves import POLICIES, halves
from seamlessflow.schemas.records import Reward, StepGroup
from tests.builders.records import control
from tests.builders.trainer.trajectories import NOTHING


def test_each_half_has_its_own_reward_over_the_steps_of_its_own_policy() -> None:
    played = [
        replace(
            NOTHING,
            session_id=name,
            rewards=tuple(
                Reward(name=half, value=value)
                for half, value in (("reward", 0.5), (ASK, asked), (ANSWER, 1.0))
            ),
        )
        for name, asked in (("s0", 0.0), ("s1", 1.0))
    ]
    steps = [
        control.committed(0, [StepGroup(group_id="g", sessions=names)], policy=POLICIES[half])
        for half, names in ((ASK, ("s0",)), (ANSWER, ("s0", "s1")))
    ]

    found = halves(steps, played)

    assert [one.rewards for one in found[ASK]] == [(0.0,)]
    assert [one.rewards for one in found[ANSWER]] == [(1.0, 1.0)]
