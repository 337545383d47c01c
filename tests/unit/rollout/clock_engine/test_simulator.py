"""The clock engine and the simulator's engine: the same turns take the same time."""

from random import Random

import pytest

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.engine import (
    SimulatedEngine,
    SimulatedSession,
    SimulatedTurn,
)
from seamlessflow.lab.simulation.workload import SessionDraw
from tests.builders.rollout.clock_turns import ClockedTurns, request

RATES = Rates(
    weights_s=0.02, row_s=0.003, context_s=1e-6, prompt_s=1e-4, prompt_context_s=1e-8, rows=4
)
UPDATE_S, LOAD_S = 3.0, 1.5


@pytest.mark.parametrize("seed", range(5))
def test_turns_updates_and_accounts_agree(seed: int) -> None:
    draws = Random(seed)
    turns = [
        (draws.uniform(0, 6), draws.randint(50, 3000), draws.randint(1, 200)) for _ in range(25)
    ]
    turns = [turn for turn in sorted(turns) if not UPDATE_S <= turn[0] <= UPDATE_S + LOAD_S]

    engine, ends_s = simulated(turns)
    clocked = ClockedTurns(RATES)
    for number, (at_s, context, tokens) in enumerate(turns):
        if clocked.now_s <= UPDATE_S < at_s:
            clocked.run(UPDATE_S)
            clocked.update(2, LOAD_S)
        clocked.run(at_s)
        prompt = range(10_000 * number, 10_000 * number + context)
        clocked.add(request(str(number), prompt, stops=(), max_tokens=tokens))
    clocked.run(1000)

    assert clocked.ends_s(*map(str, range(len(turns)))) == pytest.approx(ends_s, abs=1e-5)
    clock, expected = clocked.batch.state.clock, engine.clock
    assert clock.tokens == pytest.approx(sum(tokens for _, _, tokens in turns))
    for name in ("tokens", "busy_s", "full_batch_s", "recomputing_s"):
        assert getattr(clock, name) == pytest.approx(getattr(expected, name)), name


def simulated(turns: list[tuple[float, int, int]]) -> tuple[SimulatedEngine, list[float]]:
    """Return the simulator's engine after turns (arrival, context, tokens), and their ends."""
    agenda, ended = Agenda(), dict[int, float]()
    engine = SimulatedEngine(
        "w0",
        RATES,
        agenda,
        lambda turn: ended.update({turn.session.sample: agenda.now_s}),
        on_activity=lambda: None,
    )

    def hold() -> None:
        engine.pause()

    engine.start(1)
    for number, (at_s, context, tokens) in enumerate(turns):
        session = SimulatedSession("g", number, 10**9, SessionDraw((), 0.0))
        turn = SimulatedTurn(session=session, context=context, left=tokens)
        agenda.after(at_s, engine.submit, turn)
    agenda.after(UPDATE_S, hold)
    agenda.after(UPDATE_S + LOAD_S, engine.resume, 2)
    agenda.run_until(1000)
    return engine, [ended[number] for number in range(len(turns))]
