"""Questions of rollout processes to those that send weights, and the answers; sent as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

TOKENIZER = "tokenizer"
"""Name of the directory of a policy's tokenizer, beside its versions."""

ANSWER_S = 180.0
"""Limit for an answer: another transfer may be under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsQuestion:
    """A share of a directory that is asked for."""

    directory: str
    """Name of a version's directory, or `tokenizer`."""
    manifest_sha256: str = ""
    """Of the version, so that one of another run is not sent."""
    share: int
    shares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsAnswer:
    """The transfer that brings it, or the reason why there is none."""

    reason: str = ""
    store: str = ""
    """Address of the store where the processes find each other, host:port."""
    rank: int = 0
    """Rank of the process that asked."""
    ranks: int = 0
    sizes: Mapping[str, int]
    """Bytes of each file of the directory."""
