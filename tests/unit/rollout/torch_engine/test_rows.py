"""Through any sequence of moves, every row's KV is that of its tokens."""

import random

import numpy as np
import pytest
import torch

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.torch_engine.kv_cache import KvCache
from seamlessflow.producers.rollout.torch_engine.rows import RowTable

ROWS, LENGTH, RUNNING = 7, 40, 4
SAMPLING = SamplingParams(10)


class CheckedTable:
    """A table whose "model" writes each token's id as its keys, and its negative as its values."""

    def __init__(self, seed: int, max_tokens: int) -> None:
        self.random = random.Random(seed)
        self.kv = KvCache(ROWS, LENGTH, max_tokens)
        self.table = RowTable(self.kv)
        self.expected: dict[Request, list[int]] = {}
        self.ended: list[list[int]] = []
        self.reused = 0
        self.copied = 0

    def admit(self) -> None:
        if self.table.running == RUNNING:
            return
        start = self.random.choice([*self.ended, *self.expected.values(), []])
        start = start[: self.random.randint(0, min(len(start), LENGTH - 8))]
        tokens = start + [self.random.randint(0, 2) for _ in range(self.random.randint(1, 6))]
        longest = max(len(tokens), *self.table.length[: self.table.running].tolist(), 1)
        if (self.table.running + 1) * longest > self.kv.max_tokens:
            return
        self.table.make_room(1, len(tokens))
        array = np.array(tokens, np.int32)
        request = Request("r", array, len(tokens), SAMPLING, 0, lambda chunk: None)
        self.expected[request] = tokens
        self.reused += self.table.admit(request)

    def compute(self) -> None:
        """Give one row some of the KV it lacks, as a forward would."""
        if self.table.running == 0:
            return
        row = self.random.randrange(self.table.running)
        start, length = int(self.table.cached[row]), int(self.table.length[row])
        stop = self.random.randint(start, length)
        if start == stop:
            return
        window = self.kv.window
        window.first, window.last, window.longest = row, row + 1, stop
        window.destination = torch.arange(start, stop) + row * window.length
        ids = torch.from_numpy(self.table.tokens[row, start:stop]).float()
        states = ids[None, None, :, None].expand(1, 2, stop - start, 3)
        for layer in range(2):
            keys, values = self.kv.update(states, -states, layer)
            assert keys.shape == values.shape == (1, 2, stop, 3)
        self.table.cached[row] = stop

    def copy_prefixes(self) -> None:
        for row in range(self.table.running):
            lacked = int(self.table.pending()[row])
            source, copied = self.table.copy_prefix(row)
            assert self.table.pending()[row] == lacked - copied
            if 0 < copied == lacked:
                length = self.table.length[row]
                assert self.table.length[source] == self.table.cached[source] == length
            self.copied += copied

    def append(self) -> None:
        room = np.flatnonzero(self.table.length[: self.table.running] < LENGTH)
        if room.size:
            row = self.random.choice(room.tolist())
            token = self.random.randint(0, 2)
            self.table.append(np.array([row]), np.array([token]))
            self.expected[self.table.requests[row]].append(token)
        while self.table.is_too_long():
            self.release()
        self.table.make_room()

    def release(self) -> None:
        if self.table.running:
            row = self.random.randrange(self.table.running)
            self.ended.append(self.expected.pop(self.table.requests[row]))
            self.table.release(row)

    def swap(self) -> None:
        if self.table.running:
            row, other = (self.random.randrange(self.table.running) for _ in range(2))
            self.table.swap(row, other)

    def check(self) -> None:
        table = self.table
        running = {
            request: table.tokens[row, : table.length[row]].tolist()
            for row, request in enumerate(table.requests)
        }
        assert running == self.expected
        assert self.kv.window.rows * self.kv.window.length <= self.kv.max_tokens
        for row in range(table.used):
            cached = int(table.cached[row])
            ids = torch.from_numpy(table.tokens[row, :cached]).float()
            for buffer, sign in zip(self.kv.buffers(), (1, -1, 1, -1), strict=False):
                stored = buffer[row, :cached] if cached else buffer[:0, 0]
                assert torch.equal(stored, sign * ids[:, None, None].expand_as(stored))


@pytest.mark.parametrize("max_tokens", [LENGTH, 3 * LENGTH, ROWS * LENGTH])
@pytest.mark.parametrize("seed", range(5))
def test_kv_follows_its_tokens_through_any_moves(seed: int, max_tokens: int) -> None:
    checked = CheckedTable(seed, max_tokens)
    moves = [
        checked.admit,
        checked.compute,
        checked.compute,
        checked.copy_prefixes,
        checked.append,
        checked.release,
        checked.swap,
    ]
    for step in range(400):
        checked.random.choice(moves)()
        if step % 150 == 149:
            checked.table.invalidate()
            checked.kv.release()
            checked.table.make_room()
        checked.check()
    assert checked.reused > 0
    assert checked.copied > 0 or max_tokens < ROWS * LENGTH  # crowded, few rows are kept
