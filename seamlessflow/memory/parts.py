"""Parts of memory, in bytes, and what they have in common. Pure."""

from dataclasses import dataclass

MEBIBYTE = 1 << 20
CONTEXT = 512 * MEBIBYTE
"""Memory that CUDA itself keeps on a device for each process."""
LIBRARIES = 512 * MEBIBYTE
"""A process with torch and transformers, before it has a model."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One thing that takes memory."""

    name: str
    bytes: float


MemoryParts = tuple[MemoryPart, ...]


def total(parts: MemoryParts) -> float:
    """Return the sum of parts, in bytes."""
    return sum(part.bytes for part in parts)
