"""The invariants of the design in random simulations, and in simulations with a fault."""

import random
import re
from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st

from seamlessflow.infra.rendering.renderer import Renderer
from tests.properties.choices import Choices
from tests.properties.faults import FAULTS
from tests.properties.invariants import check, live
from tests.properties.simulation.cluster import Parts
from tests.properties.simulation.simulation import Simulation
from tests.properties.simulation.stop_rule import RulesThatEndSessions, RulesWithSums, StopsTurns
from tests.seed import seed

AGENTS = 5
SHORTEST, LONGEST = 300, 1_800
"""Choices of a simulation, in bytes."""
PARTS = (
    Parts(),
    Parts(manager=StopsTurns, rules=RulesWithSums),
    Parts(manager=StopsTurns, rules=RulesThatEndSessions),
)
"""Parts without a fault: without a rule, with one that ends turns, with one that ends sessions."""
NOTICED_WITHIN = 400
"""Worlds, until any fault is noticed."""


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [4_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_the_invariants_hold_in_thousands_of_sessions(
    sessions: int, renderers: Sequence[Renderer]
) -> None:
    lived = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=sessions // AGENTS,
        deadline=None,
        database=None,  # a run is what its seed says
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(
        st.binary(min_size=SHORTEST, max_size=LONGEST), st.booleans(), st.sampled_from(PARTS)
    )
    def holds(choices: bytes, all_thinking: bool, parts: Parts) -> None:
        nonlocal lived
        lived += _sessions(choices, renderers[all_thinking], parts)

    holds()

    assert lived >= sessions


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, renderers: Sequence[Renderer]) -> None:
    drawn = random.Random(f"{seed} {fault}")
    parts, says = FAULTS[fault].parts, FAULTS[fault].says
    other_errors = []
    for number in range(NOTICED_WITHIN):
        try:
            _sessions(drawn.randbytes(LONGEST // 2), renderers[number % 2], parts)
        except AssertionError as error:
            if re.search(says, str(error)):
                return
            # A fault has more than one effect: in few worlds another check meets it first.
            other_errors.append(str(error))

    pytest.fail(f"no error in {NOTICED_WITHIN} worlds is {says!r}; others: {other_errors}")


def _sessions(choices: bytes, renderer: Renderer, parts: Parts | None = None) -> int:
    """Run a simulation and check all invariants; return the number of its sessions."""
    simulation = Simulation(Choices(choices), renderer, AGENTS, parts or Parts())
    live(simulation)
    return check(simulation)
