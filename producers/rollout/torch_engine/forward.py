"""A `transformers` causal model's forward over neighbouring rows of the KV cache.

Rows may have any lengths. The attention mask and the position ids say which positions of its own
row each query sees. Rows with fewer new tokens than the widest one are padded on the left. The last
column then holds the logits of every row's last token.

Layers with a sliding window get their own mask over the same cache, which keeps all positions.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from seamlessflow.producers.rollout.torch_engine.kv_cache import KvCache
from seamlessflow.producers.rollout.torch_engine.limits import FULL, SLIDING

PADDING = -1
"""The position of a column that a row does not use."""


def layer_types(config: PreTrainedConfig) -> set[str]:
    """Return a model's layer types; empty if its configuration names none."""
    return set(getattr(config, "layer_types", None) or ())


def sliding_window(config: PreTrainedConfig) -> int | None:
    """Return how many tokens layers with a window see, or None if no layer has a window."""
    types = layer_types(config)
    window: int | None = getattr(config, "sliding_window", None)
    return window if not types or SLIDING in types else None


class CachedForward:
    """A model and the KV cache that it runs on. Engine thread only, in `torch.inference_mode`."""

    def __init__(self, model: PreTrainedModel, kv: KvCache) -> None:
        self.model = model
        self.kv = kv
        self.device = model.device
        self._positions_L = torch.arange(kv.max_length, device=self.device)
        self._seen = torch.zeros((), dtype=model.dtype, device=self.device)
        self._unseen = torch.full_like(self._seen, torch.finfo(model.dtype).min)
        config = model.config.get_text_config()
        self._sliding = sliding_window(config)
        self._by_type = SLIDING in layer_types(config)

    def __call__(
        self, first: int, ids_RQ: npt.NDArray[np.int64], positions_RQ: npt.NDArray[np.int64]
    ) -> Tensor:
        """Return the last column's logits [R, vocabulary] for rows `first` to `first + R`.

        Writes the KV of `ids` at `positions`, except where that is PADDING (-1).
        """
        positions = torch.from_numpy(positions_RQ).to(self.device)
        longest = int(positions_RQ.max()) + 1
        self._open_window(first, positions, longest, padded=bool((positions_RQ < 0).any()))
        output = self.model(
            input_ids=torch.from_numpy(ids_RQ).to(self.device),
            attention_mask=self._mask(positions, longest),
            position_ids=positions.clamp(min=0),
            past_key_values=self.kv,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_RV: Tensor = output.logits[:, -1]
        return logits_RV

    def _mask(self, positions_RQ: Tensor, longest: int) -> Tensor | dict[str, Tensor]:
        """Return the model's attention mask, or one for each of its layer types."""
        own_RQ1 = positions_RQ[:, :, None]
        seen_L = self._positions_L[:longest]
        full_RQL = seen_L <= own_RQ1
        if self._sliding is None:
            return self._additive(full_RQL)
        sliding = self._additive(full_RQL & (seen_L > own_RQ1 - self._sliding))
        return {FULL: self._additive(full_RQL), SLIDING: sliding} if self._by_type else sliding

    def _additive(self, visible_RQL: Tensor) -> Tensor:
        """Return 0 for visible positions and the lowest number for others, for all heads alike."""
        return torch.where(visible_RQL, self._seen, self._unseen)[:, None]

    def _open_window(self, first: int, positions_RQ: Tensor, longest: int, padded: bool) -> None:
        """Set, before the model runs, which rows the cache covers and where entries go."""
        window = self.kv.window
        last = first + positions_RQ.shape[0]
        self.kv.reserve(last, longest)
        rows_R1 = torch.arange(first, last, device=self.device)[:, None]
        destination = (rows_R1 * window.length + positions_RQ).flatten()
        window.source = None
        if padded:  # leave the padding out, or it would overwrite the KV of other positions
            window.source = (positions_RQ >= 0).flatten().nonzero()[:, 0]
            destination = destination[window.source]
        window.destination = destination
        window.first = first
        window.last = last
        window.longest = longest
