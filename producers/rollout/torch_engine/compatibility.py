"""Checks that the torch engine samples from a model's own distribution.

They look at the model's configuration and compare logits. Some models would sample from a wrong
distribution without any error. These keep something other than keys and values (recurrent states,
chunks), or scale positions by a batch's longest row. They are refused when the engine is built.
Sliding windows are masks, which `forward.py` makes.
"""

import numpy as np
import torch
from transformers import PreTrainedModel

from seamlessflow.producers.rollout.engine.errors import ModelUnsupported
from seamlessflow.producers.rollout.torch_engine.forward import (
    PADDING,
    CachedForward,
    layer_types,
    sliding_window,
)
from seamlessflow.producers.rollout.torch_engine.kv_cache import KvCache
from seamlessflow.producers.rollout.torch_engine.limits import SLIDING, unsupported

REMEDY = "; set rollout.engine to vllm (SEAMLESSFLOW_ROLLOUT__ENGINE), which may support it"

_PROBE_LENGTH = 12
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_HALF = 0.1


def plan_cache(
    model: PreTrainedModel, max_length: int | None, max_rows: int, kv_bytes: int
) -> KvCache:
    """Return an empty cache for the model, for as many tokens as `kv_bytes` can hold.

    Raises `ModelUnsupported`, also if not even one row of full length fits.
    """
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), max_length]
    length = min((int(limit) for limit in limits if limit is not None), default=0)
    if length < 1:
        raise ModelUnsupported(config.model_type, "has no context limit: set max_length")
    check_config(model)
    with torch.inference_mode():
        token_bytes = probe_kv_bytes(model)
    row_bytes = length * token_bytes
    if row_bytes > kv_bytes:
        reason = (
            f"KV of one turn of {length} tokens takes {row_bytes} bytes, more than the {kv_bytes} "
            "allowed: raise rollout.torch.kv_bytes, or lower policy.max_context"
        )
        raise ModelUnsupported(config.model_type, reason)
    tokens = kv_bytes // token_bytes
    return KvCache(min(max_rows, tokens), length, max_tokens=tokens)


def check_config(model: PreTrainedModel) -> None:
    """Raise `ModelUnsupported` for faults that comparing short rows would not show."""
    config = model.config.get_text_config()
    reason = unsupported(config.to_dict())
    if not reason and SLIDING in layer_types(config) and sliding_window(config) is None:
        reason = "names no sliding_window"
    if reason:
        raise ModelUnsupported(config.model_type, f"{reason}{REMEDY}")


def probe_kv_bytes(model: PreTrainedModel) -> int:
    """Compare cached with plain forwards on short rows; return the KV bytes that one token takes.

    The rows are prefilled together with padding, decoded together, then one is extended by a chunk.
    Raises `ModelUnsupported` if the logits differ. Call it under `torch.inference_mode`.
    """
    kv = KvCache(max_rows=2, max_length=_PROBE_LENGTH)
    forward = CachedForward(model, kv)
    ids = np.arange(1, _PROBE_LENGTH + 1) % model.config.get_text_config().vocab_size
    for rows in ([range(0, 7), range(0, 3)], [range(7, 8), range(3, 4)], [range(8, 12)]):
        width = max(len(row) for row in rows)
        positions = np.array([[PADDING] * (width - len(row)) + list(row) for row in rows])
        logits = forward(0, ids[positions.clip(min=0)], positions)
        for row, cached in zip(rows, logits, strict=True):
            plain = torch.from_numpy(ids[None, : row.stop]).to(model.device)
            wanted = model(input_ids=plain, use_cache=False).logits[0, -1]
            tolerance = _TOLERANCE.get(model.dtype, _TOLERANCE_HALF) * float(wanted.abs().max())
            if not torch.allclose(cached, wanted, rtol=0.0, atol=tolerance):
                difference = float((cached - wanted).abs().max())
                raise ModelUnsupported(
                    model.config.model_type, f"cached and plain logits differ by {difference:g}"
                )
    return kv.allocated() // (kv.window.rows * kv.window.length)
