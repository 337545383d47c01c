"""State of one session and its turns. Only `fold.apply` changes it."""

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
"""Reason of the `SessionClosed` by which a manager gives up a session that it cannot go on with."""
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
    """Addresses for the answer: the first request's and those of retries that joined, in order."""
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
    """State of its rule of control behind its tokens, while it runs."""
    control: str = ""
    """Verdict of that rule, once it has ended; empty without one."""
    control_at: int = 0
    """Length of its completion at the verdict."""
    undelivered: bool = False
    """True if the client left without the answer, and no retry asked for it since."""
    progress: list[TurnProgressed | TurnInterrupted] = field(default_factory=list)
    """Output so far of a running streamed turn, for retries that join it."""
    tensors: dict[str, TokenTensor] = field(default_factory=dict)
    """Further arrays, with a row for each token of the completion, by name."""
    copied_from: str = ""
    """Id of the recorded turn that a fork copied; empty for a turn that was sampled here."""
    played: bool = False
    """True once a request was answered with the copied turn."""

    def sampled_by(self, event: Output | TurnFailed) -> bool:
        """Return True if the worker that has the turn now wrote the event."""
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
        """Return True if the verdict of its rule does not end it."""
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
    """Place at which a forked session goes on behind its copied beginning."""

    length: int
    """Number of tokens of its last copied node."""
    prompt_node: int = -1
    """The copied prompt's node; -1 if the session goes on behind an answer."""
    history_key: bytes = b""
    """Key of the copied prompt's history."""
    parent_turn: str | None = None
    messages: tuple[bytes, ...] = ()
    """Messages of the prompt behind those of `parent_turn`."""
    playback: bool = False


@dataclass(slots=True)
class Session:
    """State of one session: enough to decide commands, match requests and build the trajectory."""

    opened: SessionOpened
    first_offset: int
    tree: Tree = field(default_factory=Tree)
    turns: dict[str, Turn] = field(default_factory=dict)
    running: dict[str, Turn] = field(default_factory=dict)
    ends: dict[bytes, list[str]] = field(default_factory=dict)
    """Ids of completed turns by the key of their history, sampled message included."""
    idempotency: dict[tuple[str, int], str] = field(default_factory=dict)
    """Id of the latest turn by idempotency key and number of the choice."""
    commands: set[str] = field(default_factory=set)
    rewards: dict[tuple[str, str, str | None], Reward] = field(default_factory=dict)
    rewards_final: bool = False
    judge_failures: dict[str, str] = field(default_factory=dict)
    """Why judges of the run gave no reward, by its name."""
    keyed_calls: set[int] = field(default_factory=set)
    """Hashes of the calls with an idempotency key that rewarded or closed it; see `calls`."""
    ignored: Counter[str] = field(default_factory=Counter)
    limit: str = ""
    """Limit that ended the newest call: `context`, `max_tokens` or `control`; empty if none did."""
    last_activity_ms: int = 0
    ended_by: str = ""
    """Id of the turn whose rule of control ended the session; empty while none did."""
    failed: bool = False
    """True once an event could not be folded, or a manager gave it up: only its end counts then."""
    closed: SessionClosed | None = None
    finalized_at_ms: int | None = None
    last_offset: int = -1
    fork: ForkPlace | None = None
    """Place behind the copied beginning; None if the session began without one."""

    def policy_of(self, module: str) -> str:
        """Return the policy that answers this module of the agent."""
        return self.opened.policies.get(module, self.opened.policy)

    def had_turns(self, count: int) -> bool:
        """Return True if so many turns were sampled or are being sampled here.

        The choices of one request are one turn; turns that failed or were cancelled do not count.
        """
        if len(self.turns) < count:
            return False
        vain = (TurnState.FAILED, TurnState.CANCELLED)
        counted = (turn for turn in self.sampled_turns if turn.state not in vain)
        return sum(turn.started.choice == 0 for turn in counted) >= count

    def has_rewards(self, closed: SessionClosed, call: AssignReward | None = None) -> bool:
        """Return True if it has all rewards that this end waits for, with that of `call`.

        If names are awaited, these count, since their judges may not know of each other. Otherwise
        a reward that is called final counts.
        """
        if not closed.await_rewards:
            return self.rewards_final if call is None else call.final
        rewards = (*self.rewards.values(), *([call.reward] if call else []))
        return _session_names(rewards).issuperset(closed.await_rewards)

    @property
    def lacking_judges(self) -> list[str]:
        """Return the names of the rewards that judges of the run have not given."""
        names = _session_names(self.rewards.values())
        judges = () if self.closed is None else self.closed.judges
        return [name for name in judges if name not in names]

    @property
    def sampled_turns(self) -> list[Turn]:
        """Return the turns that were begun here, without those that a fork copied."""
        return [turn for turn in self.turns.values() if not turn.forked]

    @property
    def playing_back(self) -> bool:
        """Return True until the agent of a fork has asked for the chosen turn."""
        return self.fork is not None and self.fork.playback and not self.sampled_turns

    def history(self, turn: Turn) -> list[bytes]:
        """Return all messages of the turn's prompt, and its answer, in canonical JSON."""
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
    """Return the names of rewards of the whole session."""
    return {reward.name for reward in rewards if reward.scope == "session"}
