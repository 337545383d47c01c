"""The engine of a simulated worker: batching, prompts, prefix cache, pauses, hand-over."""

import pytest

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.engine import (
    SimulatedEngine,
    SimulatedSession,
    SimulatedTurn,
)
from seamlessflow.lab.simulation.workload import SessionDraw


class Bench:
    """An engine whose pass takes a second for each row, and a prompt a millisecond a token."""

    def __init__(self, rows: int = 8, kv_tokens: float = 1e9) -> None:
        self.agenda = Agenda()
        self.ended: list[tuple[float, SimulatedTurn]] = []
        rates = Rates(row_s=1, prompt_s=0.001, rows=rows, kv_tokens=kv_tokens)
        self.engine = SimulatedEngine("w0", rates, self.agenda, self._end, on_activity=lambda: None)
        self.engine.start(0)

    def turn(self, session: SimulatedSession, context: float, tokens: float) -> SimulatedTurn:
        turn = SimulatedTurn(
            session=session, context=context, left=tokens, computed=session.computed
        )
        self.engine.submit(turn)
        return turn

    def _end(self, turn: SimulatedTurn) -> None:
        self.ended.append((self.agenda.now_s, turn))

    @property
    def ends_s(self) -> list[float]:
        return [round(at_s, 6) for at_s, _ in self.ended]


def session() -> SimulatedSession:
    return SimulatedSession("g", 0, 10**9, SessionDraw(((1, 1, 0.0),), 0.0))


def test_rows_share_the_passes_and_a_row_that_ends_leaves_the_others_faster() -> None:
    bench = Bench()
    bench.turn(session(), 0, 2)
    bench.turn(session(), 0, 5)

    bench.agenda.run_until(100)

    # Two rows for two passes of two seconds, then one row for three passes of one second.
    assert bench.ends_s == [4, 7]


def test_turns_beyond_the_rows_or_the_memory_wait() -> None:
    for bench in (Bench(rows=1), Bench(kv_tokens=7)):
        bench.turn(session(), 3, 2)
        bench.turn(session(), 3, 2)

        bench.agenda.run_until(100)

        assert bench.ends_s == pytest.approx([2.003, 4.006])


def test_a_session_that_stays_computes_only_what_is_new() -> None:
    bench, staying = Bench(), session()
    bench.turn(staying, 1000, 1)
    bench.agenda.run_until(10)
    bench.turn(staying, 1201, 1)
    bench.agenda.run_until(20)

    assert bench.ends_s == [2.0, 11.2]
    assert bench.engine.clock.recomputing_s == 0


def test_new_weights_make_running_turns_and_waiting_sessions_compute_again() -> None:
    bench, waiting, running = Bench(), session(), session()
    bench.turn(waiting, 999, 1)
    bench.agenda.run_until(10)
    bench.turn(running, 1000, 5)
    bench.agenda.run_until(13)  # a second for its prompt, then two tokens

    assert bench.engine.pause() == 1
    bench.agenda.run_until(33)
    bench.engine.resume(1)
    bench.agenda.run_until(50)
    assert bench.engine.clock.recomputing_s == pytest.approx(1.002)
    bench.turn(waiting, 1500, 1)  # 500 tokens are new
    bench.agenda.run_until(60)

    assert bench.ends_s == pytest.approx([1.999, 33 + 1.002 + 3, 52.5])
    assert bench.engine.clock.recomputing_s == pytest.approx(1.002 + 1.0)


def test_a_turn_that_moves_keeps_its_tokens_and_is_computed_again() -> None:
    first, second, moving = Bench(), Bench(), session()
    first.turn(moving, 1000, 5)
    first.agenda.run_until(3)  # a second for its prompt, then two tokens

    (moved,) = first.engine.drain()
    second.engine.submit(moved)
    first.agenda.run_until(100)
    second.agenda.run_until(100)

    assert (first.ends_s, first.engine.load) == ([], 0)
    assert second.ends_s == pytest.approx([1.002 + 3])
    assert second.engine.clock.recomputing_s == pytest.approx(1.002)
    assert moving.version == 0
