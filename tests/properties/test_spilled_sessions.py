"""Managers that spill every idle session at once, and others that never do, write the same log."""

import random
from collections.abc import Sequence

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.codec import encode
from tests.properties.choices import Choices
from tests.properties.invariants import check, live
from tests.properties.simulation.cluster import Parts
from tests.properties.simulation.managers import SteppedManager
from tests.properties.simulation.simulation import Simulation
from tests.seed import seed

WORLDS = 40
CHOICES = 900


class NeverSpills(SteppedManager):
    settings = ManagerSection(commit_interval_s=1e-9, memory_mb=1_000_000)


class AlwaysSpills(SteppedManager):
    settings = ManagerSection(commit_interval_s=1e-9, memory_mb=0)


def world(choices: bytes, renderer: Renderer, kind: type[SteppedManager]) -> Simulation:
    made = Simulation(Choices(choices), renderer, 5, Parts(manager=kind))
    live(made)
    return made


def test_a_spilled_session_is_read_back_as_it_was(renderers: Sequence[Renderer]) -> None:
    drawn, reads = random.Random(f"{seed} spilled"), 0
    for number in range(WORLDS):
        choices = drawn.randbytes(CHOICES)
        usual = world(choices, renderers[number % 2], NeverSpills)
        spilling = world(choices, renderers[number % 2], AlwaysSpills)

        check(spilling)
        for place in usual.topics.records | spilling.topics.records:
            records, other = usual.topics.records[place], spilling.topics.records[place]
            assert [encode(each.record) for each in records] == [
                encode(each.record) for each in other
            ]
        assert not any(manager.spilled.reads for manager in usual.managers)
        reads += sum(manager.spilled.reads for manager in spilling.managers)

    assert reads > WORLDS
