"""The clock engine's turns as a function of time: which chunks come when. Pure.

`ModelledBatch` says which turns run and how fast. An event is a turn's arrival, first token or end,
or a report on all running turns. Other tokens are no events. Each method first counts what was
sampled until `now_s`. So it may be called at any time between two events.

When a turn ends, its KV is kept in blocks of tokens. A block is known by all tokens up to its end.
So any prompt that begins with these tokens has its KV, as in vLLM. Blocks that a running turn holds
are counted with the turn.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf

from seamlessflow.infra.device_model.batch import TOLERANCE, ModelledBatch
from seamlessflow.infra.device_model.batch_clock import BatchClock
from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.producers.rollout.clock_engine.answers import Answers, ClockTurn
from seamlessflow.producers.rollout.engine.request import Request, RequestChunk, last_chunk
from seamlessflow.schemas.tokens import TOKEN_BYTES

BLOCK = 64
"""Tokens in a block: more are cheaper to look up, fewer leave less of a prompt to recompute."""


@dataclass(frozen=True, slots=True)
class ClockState:
    """A snapshot for other threads. `next_s`: when the next event is due; infinite: none."""

    clock: BatchClock
    next_s: float = inf
    running: int = 0
    waiting: int = 0
    kv_tokens: float = 0.0
    reused: int = 0

    def at(self, now_s: float) -> BatchClock:
        """Return a clock advanced to `now_s`, or to the next event if that is sooner."""
        clock = replace(self.clock)
        if self.next_s < inf:
            clock.advance(max(clock.now_s, min(now_s, self.next_s)))
        return clock


class ClockBatch:
    """All live requests. `version` samples every token; running turns report every `report_s`."""

    def __init__(
        self, rates: Rates, answers: Answers, version: int, limit: int, report_s: float
    ) -> None:
        """`limit`: most tokens in prompt and completion together."""
        self.version = version
        self.state = ClockState(BatchClock(rates))
        self._answers = answers
        self._limit = limit
        self._report_s = report_s
        self._prefixes = BlockPrefixes()
        self._batch = ModelledBatch[ClockTurn](rates, self._prefixes)
        self._live: dict[str, ClockTurn] = {}
        self._fresh: deque[ClockTurn] = deque()
        """Turns that began and have no token yet, in the order in which they began."""
        self._report_at_s = inf
        self._paused = False
        self._computed = True
        """False if running turns' KV is lost or from other weights."""

    def add(self, request: Request, now_s: float) -> list[RequestChunk]:
        """Take a request; one whose id is live is ignored."""
        if request.request_id in self._live:
            return []
        reason = request.finished_before_start(self._limit)
        if reason is not None:
            return [(request, last_chunk(request.completed, reason))]
        emissions = self._run(now_s)
        turn = ClockTurn.from_request(request, self._answers, self._limit)
        self._live[request.request_id] = turn
        self._batch.add(turn)
        return self._planned(emissions)

    def abort(self, request_id: str | None, now_s: float) -> list[RequestChunk]:
        """End one request, or all; unknown ids are ignored."""
        emissions = self._run(now_s)
        for name in list(self._live) if request_id is None else [request_id]:
            if (turn := self._live.get(name)) is not None:
                emissions += self._new([turn])
                emissions.append((turn.request, last_chunk(turn.sent, "abort")))
                self._drop(turn)
        return self._planned(emissions)

    def drop(self, request_id: str) -> None:
        """Give up a request without a chunk; an unknown id is ignored."""
        if (turn := self._live.get(request_id)) is not None:
            self._drop(turn)
            self._planned([])

    def give_up(self) -> list[RequestChunk]:
        """End all requests for good, whatever the time."""
        self._paused = True
        turns = list(self._live.values())
        self._live.clear()
        self._fresh.clear()
        self._batch.drain()
        return self._planned([(turn.request, last_chunk(turn.sent, "abort")) for turn in turns])

    def advance(self, now_s: float) -> list[RequestChunk]:
        """Return the chunks that are due until now."""
        return self._planned(self._run(now_s))

    def pause(self, now_s: float) -> list[RequestChunk]:
        """Hold all turns; return what they have sampled."""
        emissions = self._run(now_s) + self._new(self._batch.running)
        self._paused = True
        return self._planned(emissions)

    def resume(self, now_s: float) -> None:
        """Go on; recompute KV if it was lost."""
        self._paused = False
        self._batch.clock.skip(now_s)
        if not self._computed:
            self._batch.recompute()
            self._computed = True
        self._report_at_s = now_s + self._report_s if self._batch.running else inf
        self._planned([])

    def forget(self) -> None:
        """Lose all turns' KV, while paused."""
        self._computed = False

    def _run(self, now_s: float) -> list[RequestChunk]:
        if self._paused:
            return []
        emissions = []
        clock = self._batch.clock
        while (end_s := self._reached_s(self._batch.first_end)) <= now_s:
            clock.advance(end_s)
            for turn in self._batch.finish():
                del self._live[turn.request.request_id]
                last = turn.chunk(turn.answer.length, self.version, turn.answer.reason)
                emissions.append((turn.request, last))
            self._begin()
        clock.advance(now_s)
        return emissions + self._reports(now_s)

    def _begin(self) -> None:
        begun = self._batch.fill()
        self._fresh.extend(begun)
        if begun and self._report_at_s == inf:
            self._report_at_s = self._batch.clock.now_s + self._report_s

    def _reports(self, now_s: float) -> list[RequestChunk]:
        due = []
        while self._fresh and self._sampled(self._fresh[0]) >= 1:
            due.append(self._fresh.popleft())
        if now_s < self._report_at_s:
            return self._new(due)
        running = self._batch.running
        self._report_at_s = now_s + self._report_s if running else inf
        return self._new(running)

    def _new(self, turns: Sequence[ClockTurn]) -> list[RequestChunk]:
        """Return chunks for those turns that have new tokens."""
        ends = [(turn, turn.request.completed + self._sampled(turn)) for turn in turns]
        return [
            (turn.request, turn.chunk(end, self.version)) for turn, end in ends if end > turn.sent
        ]

    def _drop(self, turn: ClockTurn) -> None:
        del self._live[turn.request.request_id]
        self._batch.remove(turn)
        with suppress(ValueError):
            self._fresh.remove(turn)

    def _sampled(self, turn: ClockTurn) -> int:
        return int(self._batch.sampled(turn) + TOLERANCE)

    def _reached_s(self, passes: float | None) -> float:
        """Return the time at which so many passes will have run; for None, infinity."""
        clock = self._batch.clock
        return inf if passes is None else clock.now_s + clock.seconds_until(passes)

    def _planned(self, emissions: list[RequestChunk]) -> list[RequestChunk]:
        """Begin turns that have room, find the next event, and return the emissions."""
        batch = self._batch
        next_s = inf
        if not self._paused:
            self._begin()
            first = self._fresh[0].begin + 1 if self._fresh else None
            times = self._reached_s(batch.first_end), self._reached_s(first), self._report_at_s
            next_s = min(times)
        self.state = ClockState(
            clock=replace(batch.clock),
            next_s=next_s,
            running=len(batch.running),
            waiting=len(batch.waiting),
            kv_tokens=batch.reserved + self._prefixes.tokens,
            reused=self._prefixes.reused,
        )
        return emissions


class BlockPrefixes:
    """Blocks that are kept, in the order of their last use."""

    def __init__(self) -> None:
        self.reused = 0
        """Count of prompt tokens so far whose KV was there."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._held: Counter[int] = Counter()
        self._weights = 0

    @property
    def tokens(self) -> float:
        """Count of tokens in kept blocks, without those that running turns hold."""
        return len(self._kept) * BLOCK

    def take(self, turn: ClockTurn) -> float:
        """Return how many first tokens have KV here. From now on the turn holds their blocks."""
        # The last token is computed in any case: what follows it is sampled.
        before = turn.request.tokens[:-1].tobytes()
        turn.held = tuple(takewhile(self._knows, self._links(before)))
        for link in turn.held:
            self._kept.pop(link, None)
        self._held.update(turn.held)
        self.reused += len(turn.held) * BLOCK
        return len(turn.held) * BLOCK

    def keep(self, turn: ClockTurn) -> None:
        """Keep all blocks that an ended turn has."""
        self.release(turn)
        # The first blocks are the last to go: without them the others are useless.
        for link in reversed(list(self._links(turn.tokens))):
            if link not in self._held:
                self._kept[link] = None
                self._kept.move_to_end(link)

    def release(self, turn: ClockTurn) -> None:
        """Keep the blocks that only this turn holds; the others stay held."""
        for link in reversed(turn.held):
            if link in self._held:
                self._held[link] -= 1
                if not self._held[link]:
                    del self._held[link]
                    self._kept[link] = None
        turn.held = ()

    def shrink(self, tokens: float) -> None:
        """Forget the oldest blocks until at most so many tokens are kept."""
        while self._kept and self.tokens > tokens:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all blocks: they come from other weights."""
        self._weights += 1
        self._kept.clear()
        self._held.clear()

    def _knows(self, link: int) -> bool:
        return link in self._kept or link in self._held

    def _links(self, tokens: bytes) -> Iterator[int]:
        """Yield each block's hash: over the weights' number and all tokens up to its end."""
        link = self._weights
        size = BLOCK * TOKEN_BYTES
        for at in range(0, len(tokens) - size + 1, size):
            link = hash((link, tokens[at : at + size]))
            yield link
