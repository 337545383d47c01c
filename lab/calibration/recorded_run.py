"""The recorded run for a calibration: its `control` log, turns and sessions, without tokens.

A hop is the time from a request to its `TurnStarted`: gateway, Kafka and manager take it, not a
device. A command that was sent again counts from when it was first sent. `read_run` reads a run's
topics; everything else is pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import orjson

from seamlessflow.consumers.trajectories.sessions.message_keys import any_strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, RequestTurn, Trajectory, TurnStarted
from seamlessflow.schemas.tokens import POLICY, TOKEN_BYTES
from seamlessflow.schemas.topics import CONTROL, FLEET, REQUESTS, SESSIONS, TRAJECTORIES, Topic
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return


@dataclass(frozen=True, slots=True)
class Hops:
    """Several turns' hops."""

    lasted_ms: Sequence[int]

    @property
    def mean_ms(self) -> float:
        """Mean; 0 without a turn."""
        return fmean(self.lasted_ms) if self.lasted_ms else 0.0

    @property
    def p95_ms(self) -> int:
        """Hop that one in twenty exceeds; 0 without a turn."""
        ordered = sorted(self.lasted_ms)
        return ordered[int(0.95 * len(ordered))] if ordered else 0


def issued_ms(commands: Iterable[Record]) -> Mapping[str, int]:
    """Return when each `RequestTurn` was first sent, by command id."""
    issued: dict[str, int] = {}
    for command in commands:
        if isinstance(command, RequestTurn):
            issued.setdefault(command.command_id, command.issued_at_ms)
    return issued


def hop_ms(started: TurnStarted, issued: Mapping[str, int]) -> int | None:
    """Return a turn's hop, or None if its request is no longer kept."""
    if started.command_id not in issued:
        return None
    # The clocks of gateway and manager may differ.
    return max(0, started.at_ms - issued[started.command_id])


def hops(commands: Iterable[Record], events: Iterable[Record]) -> Hops:
    """Return the hops for turns that both topics have."""
    issued = issued_ms(commands)
    lasted = (hop_ms(event, issued) for event in events if isinstance(event, TurnStarted))
    return Hops([ms for ms in lasted if ms is not None])


_CUT_SHORT = ("aborted", "timeout", "pruned")
"""Ends of sessions that have fewer turns than their agent wanted, for example at a run's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn that one worker sampled from its beginning to its end; times in milliseconds."""

    session: str
    worker: str
    hop_ms: int | None = None
    """The time from its request to its `TurnStarted`, or None if the request is no longer kept."""
    started_ms: int
    ended_ms: int
    prompt: int
    added: int
    """Tokens of its prompt that the session did not have before."""
    sampled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A finalized training session."""

    group: str
    group_size: int
    tokens: int
    """All tokens in its tree, prompts included."""
    first: int
    """Tokens in its first prompt."""
    sampled: tuple[int, ...]
    """Each turn's tokens."""
    reward: float

    @property
    def later(self) -> int:
        """Tokens that its later turns' prompts added."""
        return max(0, self.tokens - self.first - sum(self.sampled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run's records."""

    control: Sequence[Record]
    turns: Sequence[RecordedTurn]
    sessions: Sequence[RecordedSession]
    rows: int | None = None
    """Most turns that an engine sampled at once, if its heartbeats are kept."""


def read_run(kafka: KafkaSettings, skipped: Skipped) -> Recorded:
    """Return the run on these topics, live or ended.

    Raises `NewerRelease`, and what `read_topic` raises.
    """

    def records(topic: Topic) -> Iterator[Record]:
        return (item.record for item in read_topic(kafka, topic, skipped))

    events = read_topic(kafka, SESSIONS, skipped)

    control = list(records(CONTROL))
    weights = recorded_weights(control)
    trajectories = (item for item in records(TRAJECTORIES) if isinstance(item, r.Trajectory))
    sessions = (recorded_session(trajectory, weights) for trajectory in trajectories)
    return Recorded(
        control=control,
        turns=recorded_turns(events, records(REQUESTS)),
        sessions=[session for session in sessions if session is not None],
        rows=_rows(records(FLEET)),
    )


def recorded_turns(
    events: Iterable[Received], requests: Iterable[Record] = ()
) -> Sequence[RecordedTurn]:
    """Return the turns, ordered by their ends; those that moved or failed are left out.

    `events`: from `sessions`, each partition in log order. A completion counts if the manager's
    fold accepts it. Raises `NewerRelease`.
    """
    issued = issued_ms(requests)
    turns = [_turn(begun, ended, hop_ms(begun, issued)) for begun, ended in _completions(events)]
    return sorted(turns, key=lambda turn: turn.ended_ms)


def recorded_session(
    trajectory: Trajectory, weights: RewardWeights = ONE_REWARD
) -> RecordedSession | None:
    """Return a trajectory's session; None if it is not for training, empty or cut short.

    `weights`: by reward name, to add up its return.
    """
    if trajectory.purpose != "train" or not trajectory.nodes or trajectory.status in _CUT_SHORT:
        return None
    turns: defaultdict[str, int] = defaultdict(int)
    for node in trajectory.nodes:
        if node.origin == POLICY:
            turns[node.turn_id] += node.length
    first = trajectory.nodes[0]
    return RecordedSession(
        group=trajectory.group_id,
        group_size=trajectory.group_size,
        tokens=len(trajectory.tokens) // TOKEN_BYTES,
        first=0 if first.origin == POLICY else first.length,
        sampled=tuple(turns.values()),
        reward=session_return(trajectory, weights) or 0.0,
    )


def recorded_weights(control: Iterable[Record]) -> RewardWeights:
    """Return the newest lineage's reward weights, by name; for older logs the defaults."""
    lineages = [record for record in control if isinstance(record, r.LineageStarted)]
    settings = orjson.loads(lineages[-1].settings) if lineages else {}
    rewards: RewardWeights = settings.get("trainer", {}).get("rewards", ONE_REWARD)
    return {name: weight for name, weight in rewards.items() if weight}


def mean_hop_s(turns: Iterable[RecordedTurn]) -> float:
    """Return the mean hop over turns whose request is kept; 0 if there is none."""
    return Hops([turn.hop_ms for turn in turns if turn.hop_ms is not None]).mean_ms / 1000


def _completions(events: Iterable[Received]) -> Iterator[tuple[r.TurnStarted, r.TurnCompleted]]:
    """Yield the start and the accepted end for each turn that one dispatch sampled."""
    logs: dict[int, LoggedPartition] = {}
    for item in events:
        if item.partition not in logs:
            logs[item.partition] = LoggedPartition(item.partition)
        log = logs[item.partition]
        folded = log.apply(item.record, item.offset, any_strictness)
        match item.record:
            case r.TurnCompleted(dispatch=1) as ended if folded.accepted and folded.turn:
                yield folded.turn.started, ended
            case r.SessionFinalized(session_id=session_id) if folded.accepted:
                log.sessions.pop(session_id, None)


def _turn(begun: r.TurnStarted, ended: r.TurnCompleted, hop: int | None) -> RecordedTurn:
    return RecordedTurn(
        session=begun.session_id,
        worker=ended.worker,
        hop_ms=hop,
        started_ms=begun.at_ms,
        ended_ms=ended.at_ms,
        prompt=begun.prompt_length,
        added=len(begun.suffix_ids) // TOKEN_BYTES,
        sampled=ended.token_offset + len(ended.token_ids) // TOKEN_BYTES,
    )


def _rows(fleet: Iterable[Record]) -> int | None:
    """Return the most turns that an engine samples at once, by the heartbeats."""
    capacities = [
        record.capacity
        for record in fleet
        if isinstance(record, r.WorkerHeartbeat) and record.process == "rollout" and record.capacity
    ]
    return max(capacities, default=None)
