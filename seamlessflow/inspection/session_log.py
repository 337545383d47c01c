"""Session as folded from its events on the log. Called by `seamlessflow show`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from consumers.trajectories.sessions import fold
from consumers.trajectories.sessions.message_keys import Strictness
from consumers.trajectories.sessions.session import Session
from infra.errors import SeamlessFlowError
from infra.kafka.client import Received
from infra.kafka.partitioner import partition_of
from infra.kafka.whole_topic import read_topic
from infra.rendering.tokenizer import Tokenizer, TokenizerError
from infra.settings import KafkaSettings
from schemas.identity import session_name
from schemas.records import PolicyWeights, SessionOpened, Trajectory
from schemas.topics import FLEET, SESSIONS, TRAJECTORIES


class UnknownSession(SeamlessFlowError):
    """The log contains no event of a session."""

    def __init__(self, session_id: str, events: int) -> None:
        self.session_id = session_id
        self.events = events
        super().__init__(f"no session {session_id} among {events} events of its partition")


@dataclass(frozen=True)
class LoggedSession:
    """A session, its events in order, and the tokenizer of its policy, None if it is unknown."""

    session: Session
    events: tuple[Received, ...]
    tokenizer: Tokenizer | None


def load_session(settings: KafkaSettings, session_id: str) -> LoggedSession:
    """Fold the events of a session, by id or by name (the latest). Raises `UnknownSession`."""
    policies = _policies(settings)

    def strictness(policy: str) -> Strictness:
        known = policies.get(policy)
        return known.strictness if known else "arguments"  # type: ignore[return-value]

    partition = partition_of(session_name(session_id), SESSIONS.partitions)
    read = list(read_topic(settings, SESSIONS, [partition]))
    events = events_of(session_id, read)
    session: Session | None = None
    for item in events:
        session = fold.apply(session, item.record, item.offset, strictness).session
    if session is None:
        raise UnknownSession(session_id, len(read))
    tokenizer = _tokenizer(policies.get(session.opened.policy))
    return LoggedSession(session, tuple(events), tokenizer)


def events_of(session_id: str, events: Iterable[Received]) -> list[Received]:
    """Return the events of a session, or of the last one opened under that name."""
    found: list[Received] = []
    latest = None
    for item in events:
        own = getattr(item.record, "session_id", None)
        if own is None or session_id not in (own, session_name(own)):
            continue
        if isinstance(item.record, SessionOpened):
            latest, found = own, []
        if own == latest:
            found.append(item)
    return found


def recent_trajectories(settings: KafkaSettings, count: int) -> list[Trajectory]:
    """Return the sessions that were finalized last, the newest at the end."""
    found = [
        item.record
        for item in read_topic(settings, TRAJECTORIES)
        if isinstance(item.record, Trajectory)
    ]
    return sorted(found, key=lambda trajectory: trajectory.finalized_at_ms)[-count:]


def _policies(settings: KafkaSettings) -> dict[str, PolicyWeights]:
    return {
        item.record.policy: item.record
        for item in read_topic(settings, FLEET)
        if isinstance(item.record, PolicyWeights)
    }


def _tokenizer(policy: PolicyWeights | None) -> Tokenizer | None:
    """Return the policy's tokenizer, or None if its directory is not on this machine."""
    if policy is None:
        return None
    try:
        return Tokenizer.load(Path(policy.tokenizer_directory))
    except TokenizerError:
        return None
