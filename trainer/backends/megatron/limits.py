"""Limits of this back end that a model's configuration shows. Pure, importable without torch.

Called by `architecture.py`, and by the checks before a run starts.
"""

from collections.abc import Mapping
from typing import Any

FAMILIES = ("llama", "qwen2", "qwen3")
_ROTARY = ("default", "linear", "llama3")
"""Kinds of rotary embeddings whose frequencies depend on neither length nor step."""


def unproven(config: Mapping[str, Any]) -> str:
    """Return what of a model's `config.json` the back end cannot compute, empty if nothing."""
    if (family := config.get("model_type")) not in FAMILIES:
        return f"is a {family}, not one of {', '.join(FAMILIES)}"
    if (activation := config.get("hidden_act", "silu")) != "silu":
        return f"has the hidden_act {activation}, not silu"
    if {*(config.get("layer_types") or ())} - {"full_attention"}:
        return "has layers with sliding attention"
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return "" if kind in _ROTARY else f"has the rope_type {kind}, not one of {', '.join(_ROTARY)}"
