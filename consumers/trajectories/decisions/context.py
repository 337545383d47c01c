"""A decision's inputs (`Context`) and their sources (`Contexts`), and its outcome (`Decision`).

The outcome may be a refusal (`refuse`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.consumers.trajectories.decisions.fleet import RolloutFleet
from seamlessflow.consumers.trajectories.decisions.training import RunEnds, SessionFates
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer
from seamlessflow.consumers.trajectories.sessions.ended import EndedSessions
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.clock import now_ms
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import CommandAnswered, PolicyWeights, Record
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES, SessionCommand

LARGEST_EVENT_BYTES = SESSIONS.max_record_bytes - 65_536
"""Most bytes for the parts that can grow large in an event; 64 KiB stay for the other parts."""


@dataclass(frozen=True, slots=True)
class ControlTerms:
    """Rule that ends training turns early, and the share of sessions that go on regardless."""

    rule: r.TurnControl | None = None
    exempt: float = 0.0
    record_top: int = 0
    """Number of likeliest tokens recorded beside each token."""


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """The run's judges, by their rewards' names, and how long a session waits for them."""

    names: tuple[str, ...] = ()
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunTerms:
    """The run's settings for all sessions: how turns end early, and which judges are awaited."""

    control: ControlTerms = ControlTerms()
    judges: JudgeTerms = JudgeTerms()


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a decision depends on, except the session and the command."""

    fleet: RolloutFleet
    renderer: Callable[[PolicyWeights], PromptRenderer]
    partition: int
    epoch: int
    now_ms: int
    no_progress_ms: int
    """A turn without output for this long goes to another worker."""
    used: Callable[[str], bool] = lambda session_id: False
    """Returns True for a session id that was used before."""
    ended: EndedSessions = field(default_factory=EndedSessions)
    readable_since_ms: int = 0
    """When this manager claimed the partition, or when a later Kafka outage ended.

    Gateways may lack answers that were on the log before.
    """
    fates: SessionFates = field(default_factory=SessionFates)
    run_ends: RunEnds = field(default_factory=RunEnds)
    control: ControlTerms = field(default_factory=ControlTerms)
    judges: JudgeTerms = JudgeTerms()


@dataclass(frozen=True, slots=True)
class Contexts:
    """The inputs that all decisions of a manager share, and the clock."""

    fleet: RolloutFleet
    renderer: Callable[[PolicyWeights], PromptRenderer]
    no_progress_ms: int
    clock: Callable[[], int] = now_ms
    largest_trajectory: int = TRAJECTORIES.max_record_bytes
    """Largest size in bytes for a trajectory with its tokens."""
    fates: SessionFates = field(default_factory=SessionFates)
    outage_ended_ms: Callable[[], int] = lambda: 0
    """Returns when the last Kafka outage ended, or 0 without an outage."""
    run_ends: RunEnds = field(default_factory=RunEnds)
    terms: RunTerms = RunTerms()

    def now(self, partition: Partition) -> Context:
        """Return the context for a decision made now about a session in `partition`."""
        return self.at(partition, self.clock())

    def at(self, partition: Partition, now_ms: int) -> Context:
        """Return a decision's context as it is at this time."""
        return Context(
            self.fleet,
            self.renderer,
            partition.number,
            partition.epoch,
            now_ms,
            self.no_progress_ms,
            partition.used,
            partition.ended,
            max(partition.owner_since_ms, self.outage_ended_ms()),
            self.fates,
            self.run_ends,
            self.terms.control,
            self.terms.judges,
        )


@dataclass(slots=True)
class Decision:
    """Events for `sessions` and (slot, record) pairs for `prompts`, each in sending order."""

    events: list[Record] = field(default_factory=list)
    prompts: list[tuple[int, Record]] = field(default_factory=list)
    answer: CommandAnswered | None = None
    """Answer to a repeated command: the effect it asks for is on the log already."""
    decide_again: bool = False
    """True if the command must be decided again once these events are read back."""

    def extend(self, other: "Decision") -> None:
        """Append the events and prompts of `other`."""
        self.events += other.events
        self.prompts += other.prompts


def refuse(
    command: SessionCommand, context: Context, status: int, reason: str, detail: str
) -> r.CommandRefused:
    """Return the event that refuses a command; `reason` is for programs, `detail` for people."""
    turn_id = command.turn_id if isinstance(command, r.RequestTurn | r.CancelTurn) else None
    return r.CommandRefused(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        reply=command.reply,
        turn_id=turn_id,
        status=status,
        reason=reason,
        detail=detail,
    )
