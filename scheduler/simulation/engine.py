"""The engine of a simulated worker: continuous batching, prefix cache, pauses, hand-over of turns.

Prompts are computed before the next pass (`infra/device_model/batch_clock.py`). A turn begins when
a row is free and its whole KV will fit; others wait in the order of their arrival.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from infra.device_model.batch_clock import BatchClock
from infra.device_model.rates import Rates
from scheduler.simulation.agenda import Agenda
from scheduler.simulation.workload import SessionDraw

_TOLERANCE = 1e-6
"""Part of a token by which a row may miss its end, since times are floats."""


@dataclass(slots=True, eq=False)
class SimulatedSession:
    """A session under way."""

    group: str
    sample: int
    deadline_ms: int
    drawn: SessionDraw
    turn: int = 0
    context: float = 0.0
    computed: float = 0.0
    """Tokens whose KV was computed by some engine."""
    engine: str = ""
    """Worker that sampled its last turn."""
    version: int | None = None
    """Policy version of its first token."""


@dataclass(slots=True, eq=False)
class SimulatedTurn:
    """A turn that waits or runs, as it was when it was given to its engine."""

    session: SimulatedSession
    context: float
    """Tokens before the next one to sample."""
    left: float
    """Tokens to sample."""


@dataclass(eq=False)
class SimulatedEngine:
    """The rows of one worker in its rollout role."""

    worker: str
    rates: Rates
    agenda: Agenda
    on_turn: Callable[[SimulatedTurn], None]
    """Called with each turn that ends."""
    on_activity: Callable[[], None]
    """Called when it begins or ends to decode."""
    version: int = 0
    paused: bool = False
    load: int = 0
    """Turns that run or wait."""
    recomputing_s: float = 0.0

    _running: list[tuple[float, int, SimulatedTurn]] = field(default_factory=list)
    _waiting: deque[SimulatedTurn] = field(default_factory=deque)
    _cache: OrderedDict[SimulatedSession, float] = field(default_factory=OrderedDict)
    _cached: float = 0.0
    _reserved: float = 0.0
    _ticket: int = 0
    _order: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.clock = BatchClock(self.rates)

    @property
    def decoding(self) -> bool:
        """True while it has rows and is not paused."""
        return bool(self._running) and not self.paused

    def submit(self, turn: SimulatedTurn) -> None:
        """Let a turn begin, or wait for its row."""
        self.load += 1
        self._waiting.append(turn)
        if not self.paused:
            self._settle()
            self._fill()

    def start(self, version: int) -> None:
        """Begin to serve a role with these weights."""
        self.version, self.paused = version, False
        self.clock.skip(self.agenda.now_s)

    def pause(self) -> int:
        """Hold all rows; return their number."""
        self._settle()
        self.paused = True
        self._ticket += 1
        return len(self._running)

    def resume(self, version: int) -> None:
        """Go on with new weights: the KV of all rows is computed again."""
        self.start(version)
        self._forget()
        for end, _, turn in self._running:
            again_s = self.rates.prompt(turn.context + self._sampled(turn, end))
            self.clock.pend(again_s)
            self.recomputing_s += again_s
        self._fill()

    def drain(self) -> list[SimulatedTurn]:
        """Give up all turns, as far as they have come; return them."""
        if not self.paused:
            self._settle()
        for end, _, turn in self._running:
            sampled = self._sampled(turn, end)
            turn.context += sampled
            turn.left -= sampled
            turn.session.computed = turn.context
        turns = [turn for _, _, turn in sorted(self._running)] + list(self._waiting)
        self._running, self._reserved, self.load = [], 0.0, 0
        self._waiting.clear()
        self._forget()
        self._ticket += 1
        # What was sampled and spent stays counted; the rows are gone.
        self.clock.rows, self.clock.context, self.clock.prompt_s = 0, 0.0, 0.0
        return turns

    def settle(self) -> None:
        """Count what was sampled until now."""
        if not self.paused:
            self._settle()

    def _settle(self) -> None:
        self.clock.advance(self.agenda.now_s)

    def _sampled(self, turn: SimulatedTurn, end: float) -> float:
        return max(0.0, turn.left - (end - self.clock.passes))

    def _fill(self) -> None:
        """Begin waiting turns while there is room, then enter the next end of a row."""
        clock, rates = self.clock, self.rates
        while self._waiting and clock.rows < rates.rows:
            turn = self._waiting[0]
            needed = turn.context + turn.left
            if clock.rows and self._reserved + needed > rates.kv_tokens:
                break
            self._waiting.popleft()
            self._reserved += needed
            self._begin(turn)
        self._evict()
        self._ticket += 1
        if self._running:
            ends_s = clock.seconds_until(self._running[0][0])
            self.agenda.after(ends_s, self._finish, self._ticket)
        self.on_activity()

    def _begin(self, turn: SimulatedTurn) -> None:
        session = turn.session
        cached = self._cache.pop(session, 0.0)
        self._cached -= cached
        prompt_s = self.rates.prompt(turn.context - cached, cached)
        again_s = self.rates.prompt(max(0.0, session.computed - cached), cached)
        self.recomputing_s += again_s
        self.clock.add(turn.context, prompt_s, prompt_s - again_s)
        heapq.heappush(self._running, (self.clock.passes + turn.left, next(self._order), turn))
        if session.version is None:
            session.version = self.version

    def _finish(self, ticket: int) -> None:
        if ticket != self._ticket:
            return
        clock, running = self.clock, self._running
        self._settle()
        clock.passes = max(clock.passes, running[0][0])
        ended = []
        while running and running[0][0] <= clock.passes + _TOLERANCE:
            turn = heapq.heappop(running)[2]
            whole = turn.context + turn.left
            clock.remove(whole)
            self._reserved -= whole
            self._cache[turn.session] = turn.session.computed = whole
            self._cached += whole
            ended.append(turn)
        self.load -= len(ended)
        self._fill()
        for turn in ended:
            self.on_turn(turn)

    def _evict(self) -> None:
        while self._cache and self._reserved + self._cached > self.rates.kv_tokens:
            self._cached -= self._cache.popitem(last=False)[1]

    def _forget(self) -> None:
        self._cache.clear()
        self._cached = 0.0
