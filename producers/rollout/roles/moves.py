"""The moves by which a rollout process takes, keeps and gives up its role, and their outcomes.

`roles.py` decides on moves one at a time; the thread in `device.py` carries them out and reports
the outcomes.
"""

from dataclasses import dataclass

from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.infra.worker.activity import PhaseTimes
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas.records import PolicyWeights


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
    """A sleeping engine's change to newer weights, in the host's memory.

    If the engine can load only while awake, they are only verified.
    """

    weights: PublishedWeights
    policy: PolicyWeights


@dataclass(frozen=True, slots=True)
class Release:
    """The role's move out: free the device; then comes `RoleReleased`."""

    assignment: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    """A new incarnation's start, after the scheduler declared this one lost."""


DeviceMove = Acquire | Load | Preload | Release
Move = DeviceMove | Rejoin


@dataclass(frozen=True, slots=True)
class Acquired:
    """The outcome that the engine serves and the slot is read from `slot_offset` on."""

    move: Acquire
    engine: Engine
    parser: MessageParser
    slot_offset: int
    times: PhaseTimes


@dataclass(frozen=True, slots=True)
class Paused:
    """A load's first outcome: no turn is sampled until its `Loaded`."""

    move: Load


@dataclass(frozen=True, slots=True)
class Loaded:
    """The outcome that the engine goes on with other weights."""

    move: Load
    parser: MessageParser
    paused_ms: int


@dataclass(frozen=True, slots=True)
class Preloaded:
    """The outcome that the sleeping engine has other weights, or that they are verified."""

    move: Preload


@dataclass(frozen=True, slots=True)
class Released:
    """The outcome that the engine sleeps."""

    move: Release
    free_bytes: int
    times: PhaseTimes


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The outcome that the move could not begin, for example with bad files; nothing changed."""

    move: Acquire | Load | Preload
    error: Exception


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """The outcome that the engine is in an unknown state; it stays paused."""

    move: DeviceMove
    error: Exception


Outcome = Acquired | Paused | Loaded | Preloaded | Released | NotStarted | MoveFailed
