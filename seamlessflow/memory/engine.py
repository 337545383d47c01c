"""Memory that a rollout engine takes on each of its devices, in bytes.

Pure. Weights are divided among the devices as vLLM's tensor parallelism does. The rest of the
engine's share on a device holds keys and values (Kwon et al., arXiv 2309.06180). Called by
`demand.py`.
"""

from dataclasses import dataclass

from seamlessflow.infra.device_model.model_shape import ModelShape
from seamlessflow.machine import CONTEXT, MemoryPart, MemoryParts, total

_FLOAT = 4
_PREFILL_TOKENS = 8192
"""Tokens in vLLM's largest pass."""
ENGINE_SHARE = 0.9
"""Share of device memory that vLLM fills, unless its arguments say otherwise."""


@dataclass(frozen=True, slots=True)
class EngineShape:
    """Facts that decide an engine's memory."""

    model: ModelShape
    devices: int
    """Devices that share each pass."""
    size: int
    """Bytes that one number takes in weights, keys and values."""
    rows: int
    """Most turns at once."""
    context: int
    """Most tokens in a turn with its prompt."""
    kv_bytes: float | None
    """Memory for keys and values on each device; None: what is left of its share."""
    on_gpu: bool
    share: float = ENGINE_SHARE
    """Share of a device's memory that the engine takes."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory that an engine takes on each device."""

    parts: MemoryParts
    """Without keys and values."""
    token_bytes: float
    """Bytes for one token's keys and values, on each device; 0 if unknown."""
    kv_bytes: float
    """Memory for keys and values, on each device."""
    kv_tokens: int
    turns: int
    """Full-length turns that fit at once."""
    least_kv_bytes: float
    """Memory for a full-length turn's keys and values, on each device."""


def engine_memory(engine: EngineShape, device_bytes: float | None) -> EngineMemory:
    """Return what each device holds, out of its `device_bytes` (None: unknown)."""
    layer = engine.model.layer
    devices = engine.devices
    parts = [MemoryPart("weights", engine.size * engine.model.parameters / devices)]
    if engine.on_gpu:
        parts.append(MemoryPart("CUDA itself", CONTEXT))
    token = 0.0
    if layer is not None:
        # Each key head is on at least one device; with more devices than heads, it is repeated.
        heads = max(1.0, layer.kv_heads / devices)
        token = 2.0 * layer.count * heads * layer.head_width * engine.size
        wide = 2 * layer.intermediate / devices + 4 * layer.hidden
        passed = min(_PREFILL_TOKENS, engine.context) * wide * engine.size
        logits = engine.rows * engine.model.vocabulary * _FLOAT
        parts.append(MemoryPart("passes", passed + logits))
    kv = engine.kv_bytes
    if kv is None:
        kv = max(0.0, engine.share * (device_bytes or 0.0) - total(tuple(parts)))
    tokens = int(kv // token) if token else 0
    turns = min(engine.rows, tokens // engine.context)
    return EngineMemory(tuple(parts), token, kv, tokens, turns, token * engine.context)
