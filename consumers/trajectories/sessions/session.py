"""State of a session and its turns. Only `fold.apply` changes it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from seamlessflow.consumers.trajectories.sessions.tree import Tree
from seamlessflow.schemas.records import (
    AssignReward,
    ReplyAddress,
    Reward,
    SessionClosed,
    SessionOpened,
    TokenTensor,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnProgressed,
    TurnStarted,
)

MANAGER_FAILED = "manager_failed"
"""Reason in the `SessionClosed` with which a manager gives up a session."""
Output = TurnProgressed | TurnInterrupted | TurnCompleted


class TurnState(StrEnum):
    """A turn's state; all but `RUNNING` are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CUT = "cut"


@dataclass(slots=True)
class Turn:
    """State of one turn. `worker` is None while no worker samples it."""

    started: TurnStarted
    prompt_node: int
    node: int
    waiting: list[ReplyAddress]
    """Addresses for the answer: first the first request's, then those of retries that joined."""
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
    control_state: bytes | None = None
    """State of its control rule behind its tokens, while it runs."""
    control: str = ""
    """That rule's verdict, once the turn has ended; empty without a verdict."""
    control_at: int = 0
    """Completion length at the verdict."""
    undelivered: bool = False
    """True if the client left without the answer, and no retry asked for it since."""
    progress: list[TurnProgressed | TurnInterrupted] = field(default_factory=list)
    """A running streamed turn's output so far, for retries that join it."""
    tensors: dict[str, TokenTensor] = field(default_factory=dict)
    """Further arrays by name, with a row for each completion token."""
    copied_from: str = ""
    """Id of the recorded turn that a fork copied, or empty for a turn sampled here."""
    played: bool = False
    """True once a request was answered with this copied turn."""

    def sampled_by(self, event: Output | TurnFailed) -> bool:
        """Return True if the turn's current worker wrote the event."""
        return (
            self.worker is not None
            and event.dispatch == self.dispatch
            and event.worker == self.worker
            and event.incarnation == self.incarnation
        )

    def limit_at(self, length: int) -> str:
        """Return the limit that ended a completion of this length, or an empty string."""
        if self.finish_reason != "length":
            return ""
        if self.control and not self.exempt:
            return "control"
        full = 0 < self.started.max_context <= self.started.prompt_length + length
        return "context" if full else "max_tokens"

    @property
    def exempt(self) -> bool:
        """Return True if its rule's verdict does not end the turn."""
        return self.started.control is not None and self.started.control.exempt

    @property
    def running(self) -> bool:
        """Return True if the turn has not ended."""
        return self.state is TurnState.RUNNING

    @property
    def forked(self) -> bool:
        """Return True if the turn was copied from another session."""
        return bool(self.copied_from)


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """Place where a forked session goes on behind its copied beginning."""

    length: int
    """Number of tokens in the last copied node."""
    prompt_node: int = -1
    """The copied prompt's node; -1 if the session goes on behind an answer."""
    history_key: bytes = b""
    """Key of the copied prompt's history."""
    parent_turn: str | None = None
    messages: tuple[bytes, ...] = ()
    """The prompt's messages behind those of `parent_turn`."""
    playback: bool = False


@dataclass(slots=True)
class Session:
    """A session's state: enough to decide commands, match requests and build the trajectory."""

    opened: SessionOpened
    first_offset: int
    tree: Tree = field(default_factory=Tree)
    turns: dict[str, Turn] = field(default_factory=dict)
    running: dict[str, Turn] = field(default_factory=dict)
    ends: dict[bytes, list[str]] = field(default_factory=dict)
    """Ids of completed turns by their history's key, sampled message included."""
    idempotency: dict[tuple[str, int], str] = field(default_factory=dict)
    """The latest turn's id by idempotency key and choice number."""
    commands: set[str] = field(default_factory=set)
    rewards: dict[tuple[str, str, str | None], Reward] = field(default_factory=dict)
    rewards_final: bool = False
    judge_failures: dict[str, str] = field(default_factory=dict)
    """Reasons why the run's judges gave no reward, by reward name."""
    keyed_calls: set[int] = field(default_factory=set)
    """Hashes of the calls with an idempotency key that rewarded or closed it; see `calls`."""
    ignored: Counter[str] = field(default_factory=Counter)
    limit: str = ""
    """Limit that ended the newest call: `context`, `max_tokens`, `turns`, `control`; or empty."""
    last_activity_ms: int = 0
    ended_by: str = ""
    """Id of the turn whose control rule ended the session, or empty."""
    failed: bool = False
    """True once an event could not be folded, or a manager gave the session up.

    From then on only the session's end counts.
    """
    closed: SessionClosed | None = None
    finalized_at_ms: int | None = None
    last_offset: int = -1
    fork: ForkPlace | None = None
    """Place behind the copied beginning, or None if the session began without one."""

    def policy_of(self, module: str) -> str:
        """Return the policy that answers this agent module."""
        return self.opened.policies.get(module, self.opened.policy)

    def had_turns(self, count: int) -> bool:
        """Return True if at least `count` turns were sampled or are being sampled here.

        One request's choices are one turn. Turns that failed or were cancelled do not count.
        """
        if len(self.turns) < count:
            return False
        vain = (TurnState.FAILED, TurnState.CANCELLED)
        counted = (turn for turn in self.sampled_turns if turn.state not in vain)
        return sum(turn.started.choice == 0 for turn in counted) >= count

    def has_rewards(self, closed: SessionClosed, call: AssignReward | None = None) -> bool:
        """Return True if it has all rewards that this end waits for, including that of `call`.

        If names are awaited, only those names count, since their judges may not know each other.
        Otherwise a reward that is marked as final counts.
        """
        if not closed.await_rewards:
            return self.rewards_final if call is None else call.final
        rewards = (*self.rewards.values(), *([call.reward] if call else []))
        return _session_names(rewards).issuperset(closed.await_rewards)

    @property
    def lacking_judges(self) -> list[str]:
        """The names of rewards that the run's judges have not given."""
        names = _session_names(self.rewards.values())
        judges = () if self.closed is None else self.closed.judges
        return [name for name in judges if name not in names]

    @property
    def sampled_turns(self) -> list[Turn]:
        """The turns that began here, without those that a fork copied."""
        return [turn for turn in self.turns.values() if not turn.forked]

    @property
    def playing_back(self) -> bool:
        """True until a fork's agent has asked for the chosen turn."""
        return self.fork is not None and self.fork.playback and not self.sampled_turns

    def history(self, turn: Turn) -> list[bytes]:
        """Return all messages in the turn's prompt, and its answer, as canonical JSON."""
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


def _session_names(rewards: Iterable[Reward]) -> set[str]:
    """Return the names of rewards for the whole session."""
    return {reward.name for reward in rewards if reward.scope == "session"}
