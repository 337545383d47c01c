"""Sessions as the log has them now, with their records on all topics and their policies.

Called by `seamlessflow show` and `seamlessflow trace`. `requests`, `prompts` and `replies` are kept
only for hours or days, so an old session has fewer records.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.rendering.tokenizer import Tokenizer, TokenizerError
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.model_hub import HubModel
from seamlessflow.recorded.show.observed import ObservedSession, observed_at
from seamlessflow.schemas.identity import session_id as session_of
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import (
    LineageStarted,
    PartitionClaimed,
    PolicyWeights,
    Record,
    SessionOpened,
    Task,
    Trajectory,
)
from seamlessflow.schemas.topics import (
    CONTROL,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TASKS,
    TRAJECTORIES,
    Topic,
)

IN_ORDER_OF_FLOW = (TASKS, REQUESTS, SESSIONS, PROMPTS, REPLIES, TRAJECTORIES)
_PLACES = {topic.name: place for place, topic in enumerate(IN_ORDER_OF_FLOW)}
_KEYED_BY_SESSION = (REQUESTS, SESSIONS)


class UnknownSession(SeamlessFlowError):
    """A session without any event on the log."""

    def __init__(self, session_id: str, events: int, begin: int = 0) -> None:
        """Prepare; `begin`: offset of the first event that retention left in its partition."""
        self.session_id = session_id
        self.events = events
        self.begin = begin
        reason = f"no session {session_id} among {events} events of its partition"
        if begin:
            reason += f"; it begins at offset {begin}: retention removed what was before"
        super().__init__(reason)


def newest_weights(
    settings: KafkaSettings, skipped: Skipped, stopping: Stopping = never
) -> dict[str, PolicyWeights]:
    """Return each policy's newest weights, which name its tokenizer's directory."""
    records = [item.record for item in read_topic(settings, FLEET, skipped, stopping=stopping)]
    return {record.policy: record for record in records if isinstance(record, PolicyWeights)}


class PolicyLookup:
    """Lookup for policies; it reads `fleet` once for each name that is not known yet.

    A followed session may belong to a policy that was published after the command began.
    """

    def __init__(self, settings: KafkaSettings, skipped: Skipped) -> None:
        self._settings = settings
        self._skipped = skipped
        self._known: dict[str, PolicyWeights | None] = {}
        self._tokenizers: dict[str, Tokenizer | None] = {}

    def strictness(self, policy: str) -> Strictness:
        """Return how later histories are compared with the messages that the policy sampled."""
        weights = self._find(policy)
        return weights.strictness if weights else "arguments"  # type: ignore[return-value]

    def tokenizer(self, policy: str) -> Tokenizer | None:
        """Return the policy's tokenizer, or None if its directory is not on this machine."""
        if policy not in self._tokenizers:
            self._tokenizers[policy] = tokenizer_of(self._find(policy))
        return self._tokenizers[policy]

    def _find(self, policy: str) -> PolicyWeights | None:
        if policy not in self._known:
            # Counted once only: each reading meets the same unreadable records.
            skipped = Skipped() if self._known else self._skipped
            self._known[policy] = None
            self._known |= newest_weights(self._settings, skipped)
        return self._known[policy]


@dataclass(frozen=True)
class LoggedSession:
    """A session, its policy's tokenizer (None if unknown), and its place on the log."""

    session: Session
    tokenizer: Tokenizer | None
    place: str
    """Its events' offsets and its partition, in words."""


class SessionHistory(NamedTuple):
    """A session's records with its partition's claims, and all of `control`."""

    session_id: str
    records: list[Received]
    control: list[Received]


def load_session(
    settings: KafkaSettings, session_id: str, skipped: Skipped, at: int | None = None
) -> LoggedSession:
    """Fold a session's events, by id or by name (the latest), up to and including offset `at`.

    Raises `UnknownSession` and `OutsideSession`.
    """
    policies = PolicyLookup(settings, skipped)
    read = list(read_topic(settings, SESSIONS, skipped, session_name(session_id)))
    whole = ObservedSession(session_id, policies.strictness)
    for item in read:
        whole.apply(item)
    shown = whole if at is None else observed_at(read, whole, at)
    if shown.session is None:
        raise UnknownSession(session_id, len(read), read[0].offset if read else 0)
    place = whole.place if at is None else f"as it was at offset {at}; {whole.place}"
    return LoggedSession(shown.session, policies.tokenizer(shown.session.opened.policy), place)


def session_records(settings: KafkaSettings, session_id: str, skipped: Skipped) -> list[Received]:
    """Return the records that concern a session; `session_id` is its id, not its name."""
    return in_order(
        item
        for topic in IN_ORDER_OF_FLOW
        for item in read_topic(settings, topic, skipped, key_on(topic, session_id))
        if concerns(item.record, session_id)
    )


def recent_trajectories(settings: KafkaSettings, count: int, skipped: Skipped) -> list[Trajectory]:
    """Return the sessions that were finalized last, the newest at the end."""
    trajectories = [
        item.record
        for item in read_topic(settings, TRAJECTORIES, skipped)
        if isinstance(item.record, Trajectory)
    ]
    return sorted(trajectories, key=lambda trajectory: trajectory.finalized_at_ms)[-count:]


def initial_models(settings: KafkaSettings, skipped: Skipped) -> Mapping[str, str]:
    """Return each policy's initial model: a directory, or a hub's name and commit."""
    models: dict[str, str] = {}
    for item in read_topic(settings, CONTROL, skipped):
        if isinstance(item.record, LineageStarted) and item.record.settings:
            directory = json.loads(item.record.settings)["policy"]["model"]
            model = HubModel.of_snapshot(Path(directory))
            models.setdefault(item.record.policy, str(model or directory))
    return models


def load_history(settings: KafkaSettings, session: str, skipped: Skipped) -> SessionHistory:
    """Read a session's records, by id or by name (the latest). Raises `UnknownSession`."""
    events = list(read_topic(settings, SESSIONS, Skipped(), session_name(session)))
    opened = [item.record for item in events if isinstance(item.record, SessionOpened)]
    named = [
        event.session_id
        for event in opened
        if session in (event.session_id, session_name(event.session_id))
    ]
    session_id = named[-1] if named else session
    records = session_records(settings, session_id, skipped)
    if not records:
        raise UnknownSession(session, len(events))
    claims = [item for item in events if isinstance(item.record, PartitionClaimed)]
    records = in_order([*records, *claims])
    return SessionHistory(session_id, records, list(read_topic(settings, CONTROL, skipped)))


def in_order(items: Iterable[Received]) -> list[Received]:
    """Return records in the order in which they were written; at equal times, in flow order."""
    return sorted(items, key=lambda item: (item.timestamp_ms, _PLACES[item.topic], item.offset))


def concerns(record: Record, session_id: str) -> bool:
    """Return True if the record is about the session; a command may use the session's name."""
    if isinstance(record, Task):
        groups = [record.group_id, *(role.group_id for role in record.roles)]
        return session_id in {session_of(name, record.sample, record.attempt) for name in groups}
    named = getattr(record, "session_id", None)
    return named in (session_id, session_name(session_id))


def key_on(topic: Topic, session_id: str) -> str | None:
    """Return the key for the session's records on a topic, or None if they have several."""
    return session_name(session_id) if topic in _KEYED_BY_SESSION else None


def tokenizer_of(policy: PolicyWeights | None) -> Tokenizer | None:
    """Return a policy's tokenizer, or None if its directory is not on this machine."""
    if policy is None:
        return None
    try:
        return Tokenizer.load(Path(policy.tokenizer_directory))
    except TokenizerError:
        return None
