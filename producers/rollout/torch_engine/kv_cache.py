"""Keys and values of all rows, in the form that a `transformers` model writes to and reads from.

Each layer has one buffer [row, position, head, head_dim] for keys and one for values. A forward
covers a *window* of neighbouring rows. `update` scatters the new entries to each row's own
positions. It returns views, not copies, of the window up to its longest row. That is why the row
table keeps a pass's rows next to each other. Buffers grow by doubling, up to the limits: many rows
for short turns or few for long ones.

Touched by the engine thread only, under `torch.inference_mode`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache


@dataclass(slots=True)
class Window:
    """The rows `first` to `last` that one forward covers, and where its R x Q new entries go.

    `rows` and `length` are the buffers' size. `destination` holds flat row * length + position
    indices. `source` picks from the flattened R x Q entries those that are no padding; None: all.
    """

    rows: int
    length: int
    first: int = 0
    last: int = 0
    longest: int = 0
    destination: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    source: Tensor | None = None


class KvLayer:
    """One layer's keys and values, shaped by the first states it gets."""

    def __init__(self, window: Window, key_states: Tensor, value_states: Tensor) -> None:
        self.window = window
        self.buffers = [self._buffer_like(key_states), self._buffer_like(value_states)]

    def update(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Store [row, head, query, dim]; return the window as [row, head, position, dim]."""
        keys, values = self.buffers
        return self._scattered(keys, key_states), self._scattered(values, value_states)

    def grow(self) -> None:
        """Give the buffers the size that the window has now, keeping what is stored within it."""
        for index, small in enumerate(self.buffers):
            *_, heads, head_dim = small.shape
            grown = small.new_zeros(self.window.rows, self.window.length, heads, head_dim)
            kept = small[: self.window.rows, : self.window.length]
            grown[: kept.shape[0], : kept.shape[1]] = kept
            self.buffers[index] = grown

    def _buffer_like(self, states: Tensor) -> Tensor:
        # Zeros, because what is masked is still multiplied: uninitialised memory may hold NaN.
        _, heads, _, head_dim = states.shape
        return states.new_zeros(self.window.rows, self.window.length, heads, head_dim)

    def _scattered(self, buffer: Tensor, states: Tensor) -> Tensor:
        window = self.window
        entries = states.transpose(1, 2).flatten(0, 1)
        if window.source is not None:
            entries = entries.index_select(0, window.source)
        buffer.flatten(0, 1).index_copy_(0, window.destination, entries)
        return buffer[window.first : window.last, : window.longest].transpose(1, 2)


class KvCache(Cache):
    """The cache for all layers, and the copies between rows that the row table asks for.

    It holds at most `max_tokens`, counted as rows times their length.
    """

    def __init__(self, max_rows: int, max_length: int, max_tokens: int | None = None) -> None:
        """Limit rows, tokens in a row, and tokens in all; None: as many as all rows may have."""
        super().__init__(layers=[])
        self.max_rows = max_rows
        self.max_length = max_length
        self.max_tokens = max_rows * max_length if max_tokens is None else max_tokens
        self.window = Window(rows=0, length=0)
        self._kv_layers: dict[int, KvLayer] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store one layer's new states and return the whole window; the model calls this."""
        layer = self._kv_layers.get(layer_idx)
        if layer is None:
            layer = KvLayer(self.window, key_states, value_states)
            self._kv_layers[layer_idx] = layer
        return layer.update(key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the length of the window's longest row; the model calls this."""
        return self.window.longest

    def reserve(self, rows: int, length: int) -> None:
        """Make room for so many rows with so many tokens; no KV beyond these is in use."""
        window = self.window
        wanted = (
            _doubled(window.rows, rows, self.max_rows),
            _doubled(window.length, length, self.max_length),
        )
        if wanted[0] * wanted[1] > self.max_tokens:
            wanted = self._shape(rows, length)
        if wanted != (window.rows, window.length):
            window.rows, window.length = wanted
            for layer in list(self._kv_layers.values()):
                layer.grow()

    def _shape(self, rows: int, length: int) -> tuple[int, int]:
        """Return the buffers' rows and length if the limit leaves no room to double them."""
        longer = max(length, min(2 * length, self.max_length, self.max_tokens // rows))
        return min(self.max_rows, self.max_tokens // longer), longer

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Give row `target` the positions `start` to `stop` of row `source`."""
        self.reserve(max(source, target) + 1, stop)
        for buffer in self.buffers():
            buffer[target, start:stop] = buffer[source, start:stop]

    def swap(self, row: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        self.reserve(max(row, other) + 1, length)
        for buffer in self.buffers():
            kept = buffer[row, :length].clone()
            buffer[row, :length] = buffer[other, :length]
            buffer[other, :length] = kept

    def release(self) -> None:
        """Free all memory."""
        self._kv_layers.clear()
        self.window.rows = self.window.length = 0

    def allocated(self) -> int:
        """Return the bytes held now. Any thread may ask."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def buffers(self) -> Iterator[Tensor]:
        """Yield keys and values of each layer, [row, position, head, dim]."""
        # A copy of the list: `health` asks from other threads while layers are added.
        for layer in list(self._kv_layers.values()):
            yield from layer.buffers


def _doubled(size: int, wanted: int, limit: int) -> int:
    return size if wanted <= size else min(limit, max(wanted, 2 * size))
