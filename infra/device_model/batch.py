"""Continuous batching on modelled devices: which turns run, wait and compute KV again. Pure.

A turn begins when a row is free and its whole KV will fit. Until then it waits, in arrival order.
Its prompt is computed before the next pass (`batch_clock.py`), except for tokens whose KV is kept
from earlier turns. Driven by the simulator's engine and by the clock engine, each with its own
time.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Generic, Protocol, TypeVar

from seamlessflow.infra.device_model.batch_clock import BatchClock
from seamlessflow.infra.device_model.rates import Rates

TOLERANCE = 1e-6
"""Fraction of a token by which a turn may miss its end, because times are floats."""


@dataclass(slots=True, eq=False, kw_only=True)
class ModelledTurn:
    """A turn that waits or runs, as it was when it was given to its engine."""

    context: float
    """Tokens before the next one to sample."""
    left: float
    """Tokens still to sample."""
    computed: float = 0.0
    """Context tokens whose KV some engine computed before."""
    begin: float = inf
    """Passes that the engine had run when it began; infinite before that."""

    @property
    def whole(self) -> float:
        """Tokens that it has when it ends."""
        return self.context + self.left

    @property
    def end(self) -> float:
        """The pass with which it ends, once it has begun."""
        return self.begin + self.left


T = TypeVar("T", bound=ModelledTurn)
_Of = TypeVar("_Of", bound=ModelledTurn, contravariant=True)


class Prefixes(Protocol[_Of]):
    """A cache with the KV of ended turns."""

    @property
    def tokens(self) -> float:
        """Tokens that it keeps, in addition to those that running turns hold."""

    def take(self, turn: _Of) -> float:
        """Return how many first tokens of a beginning turn are cached; the turn now holds them."""

    def keep(self, turn: _Of) -> None:
        """Keep all tokens of a turn that has ended."""

    def release(self, turn: _Of) -> None:
        """Release what a given-up turn holds."""

    def shrink(self, tokens: float) -> None:
        """Forget the oldest tokens until at most `tokens` are kept."""

    def clear(self) -> None:
        """Forget all."""


class ModelledBatch(Generic[T]):
    """An engine's turns. Every method but `add` works at the time of the clock's last `advance`."""

    def __init__(self, rates: Rates, prefixes: Prefixes[T]) -> None:
        self.clock = BatchClock(rates)
        self._rates = rates
        self._prefixes = prefixes
        self._running: list[tuple[float, int, T]] = []
        self._waiting: deque[T] = deque()
        self._reserved = 0.0
        self._order = count()

    @property
    def running(self) -> Sequence[T]:
        """The turns that have rows, in no order."""
        return [turn for _, _, turn in self._running]

    @property
    def waiting(self) -> Sequence[T]:
        """The turns that wait, in arrival order."""
        return self._waiting

    @property
    def first_end(self) -> float | None:
        """The pass with which the next turn ends, or None if none runs."""
        return self._running[0][0] if self._running else None

    @property
    def reserved(self) -> float:
        """Tokens that the running turns will have at their end."""
        return self._reserved

    def add(self, turn: T) -> None:
        """Let a turn wait for its row."""
        self._waiting.append(turn)

    def sampled(self, turn: T) -> float:
        """Return how many tokens of a running turn were sampled here."""
        return min(turn.left, max(0.0, self.clock.passes - turn.begin))

    def fill(self) -> list[T]:
        """Begin waiting turns while there is room; return them."""
        begun = []
        while self._waiting and self.clock.rows < self._rates.rows:
            turn = self._waiting[0]
            if self.clock.rows and self._reserved + turn.whole > self._rates.kv_tokens:
                break
            self._waiting.popleft()
            self._begin(turn)
            begun.append(turn)
        if self._reserved + self._prefixes.tokens > self._rates.kv_tokens:
            self._prefixes.shrink(max(0.0, self._rates.kv_tokens - self._reserved))
        return begun

    def finish(self) -> list[T]:
        """End the turns that are due first, and return them. Call it when their end has come."""
        clock = self.clock
        ended = []
        clock.passes = max(clock.passes, self._running[0][0])
        while self._running and self._running[0][0] <= clock.passes + TOLERANCE:
            turn = heapq.heappop(self._running)[2]
            clock.remove(turn.whole)
            self._reserved -= turn.whole
            self._prefixes.keep(turn)
            ended.append(turn)
        return ended

    def remove(self, turn: T) -> None:
        """Give up a turn, running or waiting."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            return
        self._running = [entry for entry in self._running if entry[2] is not turn]
        heapq.heapify(self._running)
        self._leave(turn)

    def tokens(self, turn: T) -> float:
        """Return how many tokens a running turn has so far."""
        return turn.context + self.sampled(turn)

    def give_up(self, count: int) -> list[T]:
        """Give up `count` turns, with the tokens that they have so far; return them.

        Waiting turns go first, the latest arrival first. Then go the running turns with the fewest
        tokens to compute again.
        """
        left = [self._waiting.pop() for _ in range(min(count, len(self._waiting)))]
        by_tokens = sorted(self._running, key=lambda entry: self.tokens(entry[2]))
        begun = [turn for _, _, turn in by_tokens[: count - len(left)]]
        for turn in begun:
            self._leave(turn)
        self._running = by_tokens[len(begun) :]
        heapq.heapify(self._running)
        for turn in begun:
            self._as_far_as(turn, self.sampled(turn))
        return left + begun

    def recompute(self) -> None:
        """Compute all running turns' KV again, and forget all other KV."""
        self._prefixes.clear()
        # Prompts that were still waiting are computed once, with the rest.
        first_s = self.clock.first_s
        self.clock.prompt_s = 0.0
        self.clock.first_s = 0.0
        for turn in self.running:
            self.clock.pend(self._rates.prompt(self.tokens(turn)))
        self.clock.first_s = min(first_s, self.clock.prompt_s)

    def drain(self) -> list[T]:
        """Give up all turns, with the tokens that they have so far; return them."""
        for turn in self.running:
            self._as_far_as(turn, self.sampled(turn))
        turns = [turn for _, _, turn in sorted(self._running)] + list(self._waiting)
        self._running = []
        self._reserved = 0.0
        self._waiting.clear()
        self._prefixes.clear()
        self.clock.clear()
        return turns

    def _leave(self, turn: T) -> None:
        """Free what a running turn holds."""
        self.clock.remove(self.tokens(turn))
        self._reserved -= turn.whole
        self._prefixes.release(turn)

    def _as_far_as(self, turn: T, sampled: float) -> None:
        turn.context += sampled
        turn.left -= sampled
        turn.computed = turn.context
        turn.begin = inf

    def _begin(self, turn: T) -> None:
        rates = self._rates
        cached = self._prefixes.take(turn)
        prompt_s = rates.prompt(turn.context - cached, cached)
        again_s = rates.prompt(max(0.0, turn.computed - cached), cached)
        self.clock.add(turn.context, prompt_s, prompt_s - again_s)
        self._reserved += turn.whole
        turn.begin = self.clock.passes
        heapq.heappush(self._running, (turn.end, next(self._order), turn))
