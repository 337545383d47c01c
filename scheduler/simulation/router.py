"""The choice of an engine for each turn, by the rule of the trajectory manager.

A turn goes to the engine that has its prefix, unless that one is much busier than the least loaded
one (`RolloutFleet.choose` in `consumers/trajectories/decisions/fleet.py`). Without an engine it
waits for one. Engines that begin at the same moment share what waits, and take an equal part of
what others run (`infra/worker/balance.py`).
"""

from collections import deque

from infra.worker.balance import surplus
from scheduler.simulation.agenda import Agenda
from scheduler.simulation.engine import SimulatedEngine, SimulatedTurn


class Router:
    """The engines that serve now, and the turns that wait for one."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._engines: dict[str, SimulatedEngine] = {}
        self._waiting: deque[SimulatedTurn] = deque()
        self._uneven = False
        """True if engines began to serve and have not got their part yet."""
        self._floor = 0
        """At most the least load of an engine, so that most choices need not look at all."""

    def add(self, engine: SimulatedEngine) -> None:
        """Send turns to an engine from now on."""
        self._engines[engine.worker] = engine
        self._floor = 0
        if not self._uneven:
            self._uneven = True
            self._agenda.after(0, self._share)

    def remove(self, engine: SimulatedEngine) -> None:
        """Send no more turns to an engine."""
        self._engines.pop(engine.worker, None)

    def note_end(self, turn: SimulatedTurn) -> None:
        """Note that a turn ended, which lowers the load of its engine."""
        engine = self._engines.get(turn.session.engine)
        if engine is not None:
            self._floor = min(self._floor, engine.load)

    def submit(self, turn: SimulatedTurn) -> None:
        """Send a turn to an engine, or let it wait for one."""
        if not self._engines:
            self._waiting.append(turn)
            return
        chosen = self._choose(turn.session.engine)
        turn.session.engine = chosen.worker
        chosen.submit(turn)

    def _share(self) -> None:
        self._uneven = False
        waiting, self._waiting = self._waiting, deque()
        given_up = [
            turn
            for name, count in surplus(
                {of.worker: of.load for of in self._engines.values()}
            ).items()
            for turn in self._engines[name].give_up(count)
        ]
        for turn in given_up:
            turn.session.engine = ""
        for turn in (*waiting, *given_up):
            self.submit(turn)

    def _choose(self, affinity: str) -> SimulatedEngine:
        cached = self._engines.get(affinity)
        if cached is not None and cached.load <= 2 * self._floor + 4:
            return cached
        least = min(self._engines.values(), key=_load)
        self._floor = least.load
        return cached if cached is not None and cached.load <= 2 * least.load + 4 else least


def _load(engine: SimulatedEngine) -> int:
    return engine.load
