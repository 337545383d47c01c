"""The choice of an engine for each turn, by the trajectory manager's rule.

A turn goes to an engine with new enough weights, preferably the one that has its prefix. If that
engine is much busier than the least loaded one, the turn goes elsewhere (`RolloutFleet.choose` in
`consumers/trajectories/decisions/fleet.py`). If there is no engine, the turn waits for one. Engines
that begin at the same moment share the waiting turns. They also take an equal part of the turns
that others run (`infra/worker/balance.py`).
"""

from collections import deque

from seamlessflow.infra.worker.balance import surplus
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.engine import (
    SimulatedEngine,
    SimulatedSession,
    SimulatedTurn,
)


class Router:
    """The engines that serve now, and the turns that wait for one."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._engines: dict[str, SimulatedEngine] = {}
        self._waiting: deque[SimulatedTurn] = deque()
        self._uneven = False
        """True if engines began to serve and have not got their share yet."""
        self.newest = 0
        """Newest version published."""
        self._floor = 0
        """At most the least load among engines, so that most choices look at few engines."""

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
        """Note that a turn ended, which lowers its engine's load."""
        engine = self._engines.get(turn.session.engine)
        if engine is not None:
            self._floor = min(self._floor, engine.load)

    def cancel(self, session: SimulatedSession) -> None:
        """Give up a session's turn, wherever it is."""
        self._waiting = deque(turn for turn in self._waiting if turn.session is not session)
        engine = self._engines.get(session.engine)
        if engine is not None:
            engine.cancel(session)
            self._floor = min(self._floor, engine.load)

    def submit(self, turn: SimulatedTurn) -> None:
        """Send a turn to an engine, or let it wait for one. Drop a cancelled session's turn."""
        if turn.session.cancelled:
            return
        if turn.session.min_version is None:
            turn.session.min_version = self.newest
        if not self._engines:
            self._waiting.append(turn)
            return
        chosen = self._choose(turn.session)
        turn.session.engine = chosen.worker
        chosen.submit(turn)

    def _share(self) -> None:
        self._uneven = False
        waiting, self._waiting = self._waiting, deque()
        given_up = [
            turn
            for name, count in surplus(
                {engine.worker: engine.load for engine in self._engines.values()}
            ).items()
            for turn in self._engines[name].give_up(count)
        ]
        for turn in given_up:
            turn.session.engine = ""
        for turn in (*waiting, *given_up):
            self.submit(turn)

    def _choose(self, session: SimulatedSession) -> SimulatedEngine:
        cached = self._engines.get(session.engine)
        oldest = session.min_version or 0
        stale = cached is not None and cached.version < oldest
        if cached is not None and not stale and cached.load <= 2 * self._floor + 4:
            return cached
        least = min(self._engines.values(), key=_load)
        self._floor = least.load
        if stale or least.version < oldest:
            current = [engine for engine in self._engines.values() if engine.version >= oldest]
            newer = min(current, key=_load, default=None)
            if newer is not None and newer.load <= 2 * least.load + 4:
                least = newer
                cached = None if stale else cached
        return cached if cached is not None and cached.load <= 2 * least.load + 4 else least


def _load(engine: SimulatedEngine) -> int:
    return engine.load
