"""What a rollout process is to do, one move at a time: said by `roles.py`, done by `device.py`."""

from dataclasses import dataclass

from schemas.records import PolicyWeights


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A published policy version."""

    version: int
    directory: str
    manifest_sha256: str
    kind: str = "full"


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take the role: weights on the device, slot being read, then `RoleAcquired`."""

    assignment: int
    slot: int
    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Load:
    """Go on under other weights."""

    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Release:
    """Hand the turns back and free the device, then `RoleReleased`."""

    assignment: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The scheduler has given this incarnation up: be a new one."""


Move = Acquire | Load | Release | Rejoin
