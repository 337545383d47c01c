"""The outcomes that the device thread reports of a move."""

from dataclasses import dataclass

from seamlessflow.infra.worker.phases import PhaseTimes
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.roles.moves import Acquire, DeviceMove, Load, Preload, Release
from seamlessflow.producers.rollout.turns.message_parser import MessageParser


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
    """The first outcome of a load: no turn is sampled until its `Loaded`."""

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
    """The outcome that the weights are not what was published; nothing was changed."""

    move: Acquire | Load | Preload
    error: Exception


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """The outcome that the engine is in an unknown state; it stays paused."""

    move: DeviceMove
    error: Exception


Outcome = Acquired | Paused | Loaded | Preloaded | Released | NotStarted | MoveFailed
