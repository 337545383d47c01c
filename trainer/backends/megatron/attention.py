"""Attention between queries, keys and values of a rank's own heads, in Megatron-core's layers.

Given to them in place of their own, which without Transformer Engine writes out all scores and
draws random numbers on a CUDA device even where nothing is dropped. Dimensions: T columns, B rows,
Q heads of queries, G of keys and values, D width of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn


class HeadAttention(nn.Module):
    """Scaled dot-product attention of torch; a constructor and call as Megatron-core makes them."""

    def __init__(self, config: Any, **_: object) -> None:
        super().__init__()
        self._scale = config.kv_channels**-0.5

    def forward(
        self,
        query_TBQD: Tensor,
        key_TBGD: Tensor,
        value_TBGD: Tensor,
        seen_B1TT: Tensor | None,
        **_: object,
    ) -> Tensor:
        """Return (T, B, Q * D). `seen_B1TT` has which tokens (last dimension) each one sees; None:
        those before it, and itself.
        """
        query, key, value = (
            tensor.permute(1, 2, 0, 3) for tensor in (query_TBQD, key_TBGD, value_TBGD)
        )
        mixed_BQTD = nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=seen_B1TT,
            is_causal=seen_B1TT is None,
            scale=self._scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return mixed_BQTD.permute(2, 0, 1, 3).flatten(2).contiguous()


def seen_tokens(positions_BT: Tensor) -> Tensor:
    """Return which tokens each one sees (B, 1, T, T) where several chains are in one row.

    A chain begins at each position 0.
    """
    chains_BT = (positions_BT == 0).cumsum(-1)
    same_BTT = chains_BT[:, :, None] == chains_BT[:, None, :]
    size = positions_BT.shape[-1]
    earlier_TT = torch.ones(size, size, dtype=torch.bool, device=positions_BT.device).tril()
    return (same_BTT & earlier_TT)[:, None]
