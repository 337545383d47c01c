"""A simulated worker's engine: the modelled batch at the agenda's time, with hand-over.

`infra/device_model/batch.py` says which turns run and what they compute.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.infra.device_model.batch import ModelledBatch, ModelledTurn
from seamlessflow.infra.device_model.batch_clock import BatchClock
from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.lab.simulation.agenda import Agenda
from seamlessflow.lab.simulation.workload import SessionDraw


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
    cancelled: bool = False
    """True if it was stopped, at its deadline or because its group was complete without it."""
    sampled: dict[int, float] = field(default_factory=dict)
    """Tokens sampled, by policy version."""
    min_version: int | None = None
    """Newest version when it began, else None. Engines with an older one do not sample it."""


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedTurn(ModelledTurn):
    """A session's turn."""

    session: SimulatedSession
    counted: float = 0.0
    """Tokens sampled on its engine that its session has counted."""


@dataclass(eq=False)
class SessionPrefixes:
    """The KV of each session's last turn that ended here; the session's next turn takes it."""

    tokens: float = 0.0
    _kept: OrderedDict[SimulatedSession, float] = field(default_factory=OrderedDict)

    def take(self, turn: SimulatedTurn) -> float:
        """Return the tokens that are there; they now belong to the turn."""
        cached = self._kept.pop(turn.session, 0.0)
        self.tokens -= cached
        return cached

    def keep(self, turn: SimulatedTurn) -> None:
        """Keep all tokens that an ended turn has."""
        self._kept[turn.session] = turn.whole
        self.tokens += turn.whole

    def release(self, turn: SimulatedTurn) -> None:
        """Do nothing: `take` already gave the turn all that it holds."""

    def shrink(self, tokens: float) -> None:
        """Forget the oldest until at most this many tokens are kept."""
        while self._kept and self.tokens > tokens:
            self.tokens -= self._kept.popitem(last=False)[1]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.tokens = 0.0


@dataclass(eq=False)
class SimulatedEngine:
    """One worker's rows in its rollout role."""

    worker: str
    rates: Rates
    agenda: Agenda
    on_turn: Callable[[SimulatedTurn], None]
    """Called with each turn that ends."""
    on_activity: Callable[[], None]
    """Called when it begins or stops decoding, or when a turn begins to wait for newer weights."""
    version: int = 0
    paused: bool = False
    load: int = 0
    """Turns that run or wait."""
    _ticket: int = 0
    _held: list[SimulatedTurn] = field(default_factory=list)
    """Turns that wait for newer weights."""

    def __post_init__(self) -> None:
        self._batch = ModelledBatch[SimulatedTurn](self.rates, SessionPrefixes())

    @property
    def clock(self) -> BatchClock:
        """Its batch's clock, with tokens and time spent."""
        return self._batch.clock

    @property
    def decoding(self) -> bool:
        """True while it has rows and is not paused."""
        return self._batch.first_end is not None and not self.paused

    def submit(self, turn: SimulatedTurn) -> None:
        """Begin a turn, or let it wait for a row."""
        self.load += 1
        if not self.paused and self.version < (turn.session.min_version or 0):
            self._held.append(turn)
            self.on_activity()
            return
        self._batch.add(turn)
        if not self.paused:
            self.settle()
            self._fill()

    @property
    def holds(self) -> bool:
        """True if a turn waits for newer weights."""
        return bool(self._held)

    def start(self, version: int) -> None:
        """Begin to serve a role with these weights."""
        self.version = version
        self.paused = False
        self.clock.skip(self.agenda.now_s)

    def pause(self) -> int:
        """Hold all rows; return how many there are."""
        self.settle()
        self.paused = True
        self._ticket += 1
        return len(self._batch.running)

    def resume(self, version: int) -> None:
        """Continue with new weights: all rows' KV is computed again."""
        self._count_all()
        self.start(version)
        self._batch.recompute()
        self._take_held()
        self._fill()

    def drain(self) -> list[SimulatedTurn]:
        """Give up all turns with what they have sampled; return them."""
        self.settle()
        self._take_held()
        begun = self._batch.running
        self._count_all()
        turns = self._batch.drain()
        for turn in begun:
            turn.session.computed = turn.computed
            turn.counted = 0.0
        self.load = 0
        self._ticket += 1
        return turns

    def give_up(self, count: int) -> list[SimulatedTurn]:
        """Give up `count` turns, those that cost the least to move; return them."""
        self.settle()
        self._count_all()
        turns = self._batch.give_up(count)
        for turn in turns:
            turn.session.computed = turn.computed
            turn.counted = 0.0
        self.load -= len(turns)
        if not self.paused:
            self._fill()
        return turns

    def cancel(self, session: SimulatedSession) -> None:
        """Give up a session's turn, if one is here."""
        self.settle()
        self._count_all()
        batch = self._batch
        before = len(self._held)
        self._held = [turn for turn in self._held if turn.session is not session]
        turns = [turn for turn in (*batch.running, *batch.waiting) if turn.session is session]
        for turn in turns:
            batch.remove(turn)
        self.load -= before - len(self._held) + len(turns)
        if not self.paused:
            self._fill()

    def settle(self) -> None:
        """Count what was sampled until now."""
        if not self.paused:
            self.clock.advance(self.agenda.now_s)

    def _count_all(self) -> None:
        """Count the tokens that the running turns have sampled so far."""
        for turn in self._batch.running:
            self._count(turn, self._batch.sampled(turn))

    def _count(self, turn: SimulatedTurn, sampled: float) -> None:
        """Count the tokens that a turn sampled here with the present version."""
        by_version = turn.session.sampled
        added = sampled - turn.counted
        by_version[self.version] = by_version.get(self.version, 0.0) + added
        turn.counted = sampled

    def _take_held(self) -> None:
        for turn in self._held:
            self._batch.add(turn)
        self._held.clear()

    def _fill(self) -> None:
        """Begin waiting turns while there is room, then put the next row's end on the agenda."""
        for turn in self._batch.fill():
            if turn.session.version is None:
                turn.session.version = self.version
        self._ticket += 1
        end = self._batch.first_end
        if end is not None:
            self.agenda.after(self.clock.seconds_until(end), self._finish, self._ticket)
        self.on_activity()

    def _finish(self, ticket: int) -> None:
        if ticket != self._ticket:
            return
        self.settle()
        ended = self._batch.finish()
        for turn in ended:
            turn.session.computed = turn.whole
            self._count(turn, turn.left)
        self.load -= len(ended)
        self._fill()
        for turn in ended:
            self.on_turn(turn)
