"""The moves by which a rollout process takes, keeps and gives up its role.

`roles.py` decides on them one at a time, `device.py` carries them out.
"""

from dataclasses import dataclass, field

from seamlessflow.schemas.records import PolicyWeights


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A published policy version; equal to another one of the same content, wherever that is."""

    version: int
    directory: str = field(compare=False)
    manifest_sha256: str
    kind: str = field(default="full", compare=False)
    """As the record on `control` has it; that on `fleet` of the same version names none."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """The move into the role: load weights, read the slot; then comes `RoleAcquired`."""

    assignment: int
    slot: int
    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Load:
    """The change to other weights, while turns are kept."""

    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Preload:
    """The change of a sleeping engine to newer weights, in the host's memory.

    For an engine that loads awake alone they are only verified.
    """

    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Release:
    """The move out of the role: free the device; then comes `RoleReleased`."""

    assignment: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The start of a new incarnation, after the scheduler declared this one lost."""


DeviceMove = Acquire | Load | Preload | Release
Move = DeviceMove | Rejoin
