"""What the fold knows of one session and its turns. Changed by `fold.py` alone."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from consumers.trajectories.sessions.tree import Tree
from schemas.records import (
    ReplyAddress,
    Reward,
    SessionClosed,
    SessionOpened,
    TokenTensor,
    TurnInterrupted,
    TurnProgressed,
    TurnStarted,
)


class TurnState(StrEnum):
    """Where a turn stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CUT = "cut"


@dataclass(slots=True)
class Turn:
    """One sampled turn. `worker` is None while nobody samples it."""

    started: TurnStarted
    prompt_node: int
    node: int
    waiting: list[ReplyAddress]
    """Where the answer goes: to whoever asked and each retry that joined, the latest last."""
    last_progress_ms: int
    state: TurnState = TurnState.RUNNING
    dispatch: int = 0
    worker: str | None = None
    incarnation: str = ""
    slot: int = -1
    no_progress_ms: int = 0
    interruptions: int = 0
    prompt_confirmed: bool = True
    finish_reason: str = ""
    stop_sequence: str | None = None
    reasoning_tokens: int | None = None
    message: bytes = b""
    progress: list[TurnProgressed | TurnInterrupted] = field(default_factory=list)
    """Of a streamed turn under way: what a retry that joins has to be told."""
    tensors: dict[str, TokenTensor] = field(default_factory=dict)
    """Further arrays over the whole completion, by name."""

    @property
    def running(self) -> bool:
        """Whether an answer is still to come."""
        return self.state is TurnState.RUNNING


@dataclass(slots=True)
class Session:
    """All that is needed to decide, to continue and to build the trajectory."""

    opened: SessionOpened
    first_offset: int
    tree: Tree = field(default_factory=Tree)
    turns: dict[str, Turn] = field(default_factory=dict)
    running: dict[str, Turn] = field(default_factory=dict)
    ends: dict[bytes, list[str]] = field(default_factory=dict)
    """Turns that end behind a history, by its key chained with the sampled message's."""
    idempotency: dict[tuple[str, int], str] = field(default_factory=dict)
    """Latest turn of each idempotency key and number of a choice."""
    commands: set[str] = field(default_factory=set)
    rewards: dict[tuple[str, str, str | None], Reward] = field(default_factory=dict)
    rewards_final: bool = False
    ignored: Counter[str] = field(default_factory=Counter)
    last_activity_ms: int = 0
    closed: SessionClosed | None = None
    finalized_at_ms: int | None = None
    last_offset: int = -1

    def policy_of(self, module: str) -> str:
        """The policy that answers this part of the agent."""
        return self.opened.policies.get(module, self.opened.policy)

    def history(self, turn: Turn) -> list[bytes]:
        """All messages of the turn's prompt and its answer, as canonical JSON."""
        parts: list[tuple[bytes, ...]] = []
        while True:
            parts.append((*turn.started.new_messages, turn.message))
            if turn.started.parent_turn is None:
                break
            turn = self.turns[turn.started.parent_turn]
        return [message for part in reversed(parts) for message in part]

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.opened.session_id
