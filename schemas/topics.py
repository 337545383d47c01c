"""The log's topics: their partitions, retention, records and keys.

The partition counts here are for new topics: programs read the real counts from the cluster. Those
never change, because a key's partition must stay the same. Records on `requests` are commands about
a session, or a gateway's questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import (
    AssignReward,
    CancelTurn,
    CloseSession,
    CountTokens,
    DescribeSession,
    OpenSession,
    Record,
    RequestTurn,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FOR_EVER = -1

Headers = Sequence[tuple[str, bytes]]
"""A record's headers on a topic, which name its trace; empty if it has none."""

# Bytes for each token in its largest record (ids, log-probs, mask), with text of the same
# length. Together with the longest context it gives the limits on record sizes.
BYTES_A_TOKEN = 32
DEFAULT_MAX_CONTEXT = 262_144


@dataclass(frozen=True)
class Topic:
    """One topic of the log."""

    name: str
    partitions: int
    retention_ms: int
    records: tuple[type[Record], ...]
    compacted: bool = False
    max_record_bytes: int = 1_048_576

    @property
    def cleanup(self) -> str:
        """Value of Kafka's `cleanup.policy`."""
        return "compact" if self.compacted else "delete"

    @property
    def dead_letters(self) -> str:
        """Name of the topic for records from this one that cannot be decoded or processed."""
        return dead_letters_of(self.name)


def dead_letters_of(topic: str) -> str:
    """Return the name of a topic's dead-letter topic."""
    return f"{topic}.dlq"


_LARGE = BYTES_A_TOKEN * DEFAULT_MAX_CONTEXT

REQUESTS = Topic(
    "requests",
    32,
    3 * DAY_MS,
    (
        r.OpenSession,
        r.RequestTurn,
        r.CancelTurn,
        r.CountTokens,
        r.DescribeSession,
        r.AssignReward,
        r.CloseSession,
    ),
    max_record_bytes=_LARGE,
)
SESSIONS = Topic(
    "sessions",
    32,
    FOR_EVER,
    (
        r.PartitionClaimed,
        r.SessionOpened,
        r.TurnStarted,
        r.TurnDispatched,
        r.TurnJoined,
        r.TurnPlayedBack,
        r.TurnProgressed,
        r.TurnInterrupted,
        r.TurnCompleted,
        r.TurnFailed,
        r.TurnCancelled,
        r.TurnUndelivered,
        r.RewardAssigned,
        r.SessionClosed,
        r.SessionFinalized,
        r.CommandRefused,
    ),
    max_record_bytes=_LARGE,
)
PROMPTS = Topic(
    "prompts", 64, HOUR_MS, (r.GenerateTurn, r.CancelGeneration), max_record_bytes=_LARGE
)
REPLIES = Topic(
    "replies",
    64,
    HOUR_MS,
    (r.ReplyDelta, r.ReplyFinished, r.CommandAnswered),
    max_record_bytes=_LARGE,
)
TRAJECTORIES = Topic("trajectories", 16, FOR_EVER, (r.Trajectory,), max_record_bytes=2 * _LARGE)
ENDED_SESSIONS = Topic("ended_sessions", 32, FOR_EVER, (r.EndedSession,))
"""A session has the same partition here and on `sessions`. Its id is in use while either has it."""
TASKS = Topic("tasks", 16, 3 * DAY_MS, (r.Task,), max_record_bytes=_LARGE)
CONTROL = Topic(
    "control",
    1,
    FOR_EVER,
    (
        r.SchedulerClaimed,
        r.WorkerJoined,
        r.WorkerLost,
        r.RoleAssigned,
        r.RoleReleased,
        r.RoleAcquired,
        r.AssignmentTimedOut,
        r.GroupAdmitted,
        r.SampleFailed,
        r.GroupReady,
        r.GroupConsumed,
        r.GroupDropped,
        r.GroupExpired,
        r.EvaluationCompleted,
        r.BatchReady,
        r.LineageStarted,
        r.StepStarted,
        r.StepCommitted,
        r.StepCompleted,
        r.StepSkipped,
        r.WeightsPublished,
        r.WeightsLoaded,
        r.GenerationPaused,
        r.GenerationResumed,
        r.WorkerUsage,
        r.ProgressStalled,
        r.PlanWarning,
        r.RunFinished,
    ),
)
FLEET = Topic(
    "fleet",
    1,
    DAY_MS,
    (
        r.WorkerHeartbeat,
        r.GatewayHeartbeat,
        r.TrainerHeartbeat,
        r.ManagerStarted,
        r.WorkerAssignment,
        r.PolicyWeights,
        r.SchedulerSnapshot,
    ),
    compacted=True,
)

ARMS = Topic("arms", 1, DAY_MS, (r.ArmSnapshot,), compacted=True)
"""Statistics on tasks and task pools.

The keys have the epoch. So a scheduler that was replaced never hides what its successor wrote.
"""

SHARED = Topic("shared", 1, FOR_EVER, (r.SharedGroup,), max_record_bytes=4 * 1_048_576)
"""Groups as text, for other people's runs (`seamlessflow share`).

It has its own prefix, so a run does not create it. Records that are too large to be taken still
have room here, and become dead letters.
"""

SAME_PARTITIONS: tuple[tuple[Topic, ...], ...] = (
    (REQUESTS, SESSIONS, ENDED_SESSIONS),
    (CONTROL,),
    (FLEET,),
    (ARMS,),
)
"""Topics that must have equally many partitions, since a session has the same number on all.

A topic listed alone has one partition, so that its records have one order. All other counts come
from the cluster.
"""

TOPICS: Mapping[str, Topic] = {
    topic.name: topic
    for topic in (
        REQUESTS,
        SESSIONS,
        PROMPTS,
        REPLIES,
        TRAJECTORIES,
        ENDED_SESSIONS,
        TASKS,
        CONTROL,
        FLEET,
        ARMS,
    )
}
"""Topics that each run creates."""
LETTERED: Mapping[str, Topic] = {**TOPICS, SHARED.name: SHARED}
"""All topics that have dead letters."""


def arm_key(epoch: int, arm: str) -> str:
    """Return an `arms` record's key."""
    return f"{epoch}/{arm}"


def fleet_key(record: Record) -> str:
    """Return a `fleet` record's key, its type and subject: compaction keeps the last one."""
    match record:
        case r.WorkerHeartbeat(worker=worker, process=process):
            return f"WorkerHeartbeat/{worker}/{process}"
        case r.GatewayHeartbeat(gateway=gateway):
            return f"GatewayHeartbeat/{gateway}"
        case r.TrainerHeartbeat(policy=policy):
            return f"TrainerHeartbeat/{policy}"
        case r.ManagerStarted(member=member):
            return f"ManagerStarted/{member}"
        case r.WorkerAssignment(worker=worker):
            return f"WorkerAssignment/{worker}"
        case r.PolicyWeights(policy=policy):
            return f"PolicyWeights/{policy}"
        case r.SchedulerSnapshot():
            return "SchedulerSnapshot"
    raise TypeError(f"{type(record).__name__} does not belong on {FLEET.name}")


SessionCommand = OpenSession | RequestTurn | CancelTurn | AssignReward | CloseSession
"""Commands, which become events in their session."""
GatewayQuestion = CountTokens | DescribeSession
"""Questions, which a manager answers without an event."""
