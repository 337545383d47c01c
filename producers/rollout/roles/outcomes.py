"""What the device thread reports of a step."""

from dataclasses import dataclass

from producers.rollout.engine.contract import Engine
from producers.rollout.roles.steps import Acquire, Load, Release
from producers.rollout.turns.message_reader import MessageReader


@dataclass(frozen=True, slots=True)
class Acquired:
    """The engine serves and the slot is read from `slot_offset`."""

    step: Acquire
    engine: Engine
    reader: MessageReader
    slot_offset: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class Paused:
    """No turn is sampled until the step's `Loaded`."""

    step: Load


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine goes on under other weights."""

    step: Load
    reader: MessageReader
    paused_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The engine sleeps."""

    step: Release
    free_bytes: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The weights of the step are not what was published; nothing was changed."""

    step: Acquire | Load
    error: Exception


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine is in an unknown state; it stays paused."""

    step: Acquire | Load | Release
    error: Exception


Outcome = Acquired | Paused | Loaded | Released | NotStarted | Failed
