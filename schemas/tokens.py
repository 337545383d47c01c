"""Tokens as records carry them, and the steps that train them. Pure.

Ids are little-endian int32, one after the other. People see step numbers that begin at 1.
"""

import struct
from collections.abc import Sequence

from seamlessflow.schemas.records import StepCommitted, StepGroup, VersionSpan

TOKEN_BYTES = 4
POLICY = "policy"
"""Origin of tokens that were sampled in the session itself."""
FORKED = "forked"
"""Origin of tokens that were sampled in the session from which this one was forked."""
FOREIGN = "foreign"
"""Origin of tokens that another system sampled, and the reason why they are masked."""


def of_exact_version(span: VersionSpan) -> bool:
    """Return True if the version that sampled each token in the span is known."""
    return span.version_min == span.version_max


def pack(ids: Sequence[int]) -> bytes:
    """Return token ids as bytes. Raises `struct.error` for a number that is no int32."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack(ids: bytes) -> list[int]:
    """Return the token ids in bytes, the inverse of `pack`. Raises ValueError for part of an id."""
    count, rest = divmod(len(ids), TOKEN_BYTES)
    if rest:
        raise ValueError(f"{len(ids)} bytes are not a run of int32 token ids")
    return list(struct.unpack(f"<{count}i", ids))


def shown_step(step: int) -> int:
    """Return a step's number for people, who count from 1 as a run's printed lines do.

    Records, and files with trained tokens, count from 0.
    """
    return step + 1


def step_name(step: int) -> str:
    """Return a step's name in a sentence; `step` counts from 0."""
    return f"step {shown_step(step)}"


def trained_sessions(commit: StepCommitted, group: StepGroup) -> frozenset[str]:
    """Return a group's sessions that have a token in the step's loss.

    A log from before 0.1.0 has no token counts. For such a log all sessions are returned.
    """
    if not commit.methods and not commit.trained_tokens:
        return frozenset(group.sessions)
    return frozenset(name for name in group.sessions if name in commit.trained_tokens)
