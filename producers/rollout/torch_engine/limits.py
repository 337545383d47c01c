"""Limits of the torch engine that a model's configuration shows. Pure, importable without torch."""

from collections.abc import Mapping
from typing import Any

FULL, SLIDING = "full_attention", "sliding_attention"
"""Layer types, as configurations name them and models look up their masks."""
_OF_THE_BATCH = frozenset({"dynamic", "longrope", "su"})
"""Rotary scalings by a batch's longest row; `su` is an older name of `longrope`."""


def unsupported(config: Mapping[str, Any]) -> str:
    """Return what in a model's `config.json` the engine cannot run; empty if there is nothing."""
    text = config.get("text_config") or config
    if other := sorted(set(text.get("layer_types") or ()) - {FULL, SLIDING}):
        return f"has layers of type {', '.join(other)}"
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    # Either one set of parameters for all layers, or one for each layer type.
    sections = [section for section in (rope, *rope.values()) if isinstance(section, dict)]
    scalings = {str(section.get("rope_type") or section.get("type")) for section in sections}
    if other := sorted(scalings & _OF_THE_BATCH):
        return f"has rotary scaling {', '.join(other)}, which depends on the batch"
    return ""
