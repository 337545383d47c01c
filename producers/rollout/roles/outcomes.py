"""What the device thread reports of a move."""

from dataclasses import dataclass

from producers.rollout.engine.contract import Engine
from producers.rollout.roles.moves import Acquire, Load, Release
from producers.rollout.turns.message_parser import MessageParser


@dataclass(frozen=True, slots=True)
class Acquired:
    """The engine serves and the slot is read from `slot_offset`."""

    move: Acquire
    engine: Engine
    parser: MessageParser
    slot_offset: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class Paused:
    """No turn is sampled until the move's `Loaded`."""

    move: Load


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine goes on under other weights."""

    move: Load
    parser: MessageParser
    paused_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The engine sleeps."""

    move: Release
    free_bytes: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The weights of the move are not what was published; nothing was changed."""

    move: Acquire | Load
    error: Exception


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """The engine is in an unknown state; it stays paused."""

    move: Acquire | Load | Release
    error: Exception


Outcome = Acquired | Paused | Loaded | Released | NotStarted | MoveFailed
