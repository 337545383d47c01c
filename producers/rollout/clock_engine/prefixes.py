"""The prefix cache of the clock engine: KV of turns that have ended, in blocks of tokens. Pure.

A block is known by all tokens up to its end. Any prompt that begins with them has its KV, as in
vLLM. Blocks that running turns hold are theirs and are counted with them.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from seamlessflow.producers.rollout.clock_engine.turn import ClockTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES

BLOCK = 64
"""Tokens of a block: more are cheaper to look up, fewer leave less of a prompt to compute again."""


class BlockPrefixes:
    """The blocks that are kept, the one used last behind the others."""

    def __init__(self) -> None:
        self.reused = 0
        """Tokens of prompts so far whose KV was there."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._held: Counter[int] = Counter()
        self._weights = 0

    @property
    def tokens(self) -> float:
        """Tokens that are kept, beside those that running turns hold."""
        return len(self._kept) * BLOCK

    def take(self, turn: ClockTurn) -> float:
        """Return how many first tokens of a turn that begins are there; it holds them now."""
        # The last token is computed in any case: what follows it is sampled.
        before = turn.request.tokens[:-1].tobytes()
        turn.held = tuple(takewhile(self._knows, self._links(before)))
        for link in turn.held:
            self._kept.pop(link, None)
        self._held.update(turn.held)
        self.reused += len(turn.held) * BLOCK
        return len(turn.held) * BLOCK

    def keep(self, turn: ClockTurn) -> None:
        """Keep all blocks of a turn that has ended."""
        self.release(turn)
        # The first blocks are the last to go: without them the others are of no use.
        for link in reversed(list(self._links(turn.tokens))):
            if link not in self._held:
                self._kept[link] = None
                self._kept.move_to_end(link)

    def release(self, turn: ClockTurn) -> None:
        """Keep the blocks that a turn holds, but for those that others hold too."""
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
        """Forget all: they are of other weights."""
        self._weights += 1
        self._kept.clear()
        self._held.clear()

    def _knows(self, link: int) -> bool:
        return link in self._kept or link in self._held

    def _links(self, tokens: bytes) -> Iterator[int]:
        """Yield for each block a hash of the weights and of all tokens up to its end."""
        link, size = self._weights, BLOCK * TOKEN_BYTES
        for at in range(0, len(tokens) - size + 1, size):
            link = hash((link, tokens[at : at + size]))
            yield link
