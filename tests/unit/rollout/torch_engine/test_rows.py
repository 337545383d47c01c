"""Through any sequence of moves, every slot's KV is that of its tokens."""

import random

import numpy as np
import pytest
import torch

from producers.rollout.engine.contract import SamplingParams
from producers.rollout.torch_engine.kv_cache import KvCache
from producers.rollout.torch_engine.rows import RowTable

SLOTS, LENGTH, ROWS = 7, 40, 4
SAMPLING = SamplingParams(10)


class Bench:
    """A table whose "model" writes each token's id as its keys, and its negative as its values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kv = KvCache(SLOTS, LENGTH)
        self.slots = RowTable(self.kv)
        self.expected: dict[int, list[int]] = {}
        self.ended: list[list[int]] = []
        self.reused = 0

    def admit(self) -> None:
        if self.slots.running == ROWS:
            return
        start = self.random.choice([*self.ended, *self.expected.values(), []])
        start = start[: self.random.randint(0, min(len(start), LENGTH - 8))]
        tokens = start + [self.random.randint(0, 2) for _ in range(self.random.randint(1, 6))]
        ticket = len(self.expected) + len(self.ended) + 1
        self.expected[ticket] = tokens
        array = np.array(tokens, np.int32)
        self.reused += self.slots.admit(ticket, array, len(tokens), SAMPLING, seed=0)

    def compute(self) -> None:
        """Give one row some of the KV it lacks, as a forward would."""
        if self.slots.running == 0:
            return
        row = self.random.randrange(self.slots.running)
        start, known = int(self.slots.cached[row]), int(self.slots.known[row])
        stop = self.random.randint(start, known)
        if start == stop:
            return
        self.kv.reserve(row + 1, stop)
        window = self.kv.window
        window.first, window.last, window.longest = row, row + 1, stop
        window.destination = torch.arange(start, stop) + row * window.length
        ids = torch.from_numpy(self.slots.tokens[row, start:stop]).float()
        states = ids[None, None, :, None].expand(1, 2, stop - start, 3)
        for layer in range(2):
            keys, values = self.kv.update(states, -states, layer)
            assert keys.shape == values.shape == (1, 2, stop, 3)
        self.slots.cached[row] = stop

    def append(self) -> None:
        room = np.flatnonzero(self.slots.known[: self.slots.running] < LENGTH)
        if room.size:
            row = self.random.choice(room.tolist())
            token = self.random.randint(0, 2)
            self.slots.append(np.array([row]), np.array([token]))
            self.expected[int(self.slots.ticket[row])].append(token)

    def release(self) -> None:
        if self.slots.running:
            row = self.random.randrange(self.slots.running)
            self.ended.append(self.expected.pop(int(self.slots.ticket[row])))
            self.slots.release(row)

    def swap(self) -> None:
        if self.slots.running:
            one, other = (self.random.randrange(self.slots.running) for _ in range(2))
            self.slots.swap(one, other)

    def check(self) -> None:
        slots = self.slots
        running = {
            int(slots.ticket[row]): slots.tokens[row, : slots.known[row]].tolist()
            for row in range(slots.running)
        }
        assert running == self.expected
        for slot in range(slots.used):
            cached = int(slots.cached[slot])
            ids = torch.from_numpy(slots.tokens[slot, :cached]).float()
            for buffer, sign in zip(self.kv.buffers(), (1, -1, 1, -1), strict=False):
                stored = buffer[slot, :cached] if cached else buffer[:0, 0]
                assert torch.equal(stored, sign * ids[:, None, None].expand_as(stored))


@pytest.mark.parametrize("seed", range(5))
def test_kv_follows_its_tokens_through_any_moves(seed: int) -> None:
    bench = Bench(seed)
    moves = [bench.admit, bench.compute, bench.compute, bench.append, bench.release, bench.swap]
    for step in range(400):
        bench.random.choice(moves)()
        if step % 150 == 149:
            bench.slots.void()
            bench.kv.release()
        bench.check()
    assert bench.reused > 0
