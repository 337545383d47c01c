"""Session as folded from its events on the log. Called by `seamlessflow show`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from consumers.trajectories.sessions.message_keys import Strictness
from consumers.trajectories.sessions.partition import Partition, PartitionProgress
from consumers.trajectories.sessions.session import Session
from infra.errors import SeamlessFlowError
from infra.kafka.client import Received
from infra.kafka.unreadable import Skipped
from infra.kafka.whole_topic import read_topic
from infra.rendering.tokenizer import Tokenizer, TokenizerError
from infra.settings import KafkaSettings
from schemas.identity import session_name
from schemas.records import PartitionClaimed, PolicyWeights, SessionOpened, Trajectory
from schemas.topics import FLEET, SESSIONS, TRAJECTORIES


class UnknownSession(SeamlessFlowError):
    """The log contains no event of a session."""

    def __init__(self, session_id: str, events: int) -> None:
        self.session_id = session_id
        self.events = events
        super().__init__(f"no session {session_id} among {events} events of its partition")


@dataclass(frozen=True)
class LoggedSession:
    """A session, and the tokenizer of its policy, None if it is unknown."""

    session: Session
    tokenizer: Tokenizer | None


def load_session(settings: KafkaSettings, session_id: str, skipped: Skipped) -> LoggedSession:
    """Fold the events of a session, by id or by name (the latest). Raises `UnknownSession`."""
    policies = _policies(settings, skipped)

    def strictness(policy: str) -> Strictness:
        known = policies.get(policy)
        return known.strictness if known else "arguments"  # type: ignore[return-value]

    read = list(read_topic(settings, SESSIONS, skipped, session_name(session_id)))
    session = folded(session_id, read, strictness)
    if session is None:
        raise UnknownSession(session_id, len(read))
    return LoggedSession(session, _tokenizer(policies.get(session.opened.policy)))


def folded(
    session_id: str, events: Iterable[Received], strictness: Callable[[str], Strictness]
) -> Session | None:
    """Return a session, or the last one opened under that name, from the events of its partition.

    As the manager folds it: events of managers whose claim was over do not count.
    """
    partition: Partition | None = None
    latest = None
    for item in events:
        partition = partition or Partition(item.partition, PartitionProgress(), manager="")
        own = getattr(item.record, "session_id", None)
        if own is None:
            about = isinstance(item.record, PartitionClaimed)
        else:
            about = session_id in (own, session_name(own))
        if not about:
            continue
        accepted = partition.apply(item.record, item.offset, strictness).accepted
        if accepted and isinstance(item.record, SessionOpened):
            latest = own
    return None if partition is None or latest is None else partition.sessions[latest]


def recent_trajectories(settings: KafkaSettings, count: int, skipped: Skipped) -> list[Trajectory]:
    """Return the sessions that were finalized last, the newest at the end."""
    found = [
        item.record
        for item in read_topic(settings, TRAJECTORIES, skipped)
        if isinstance(item.record, Trajectory)
    ]
    return sorted(found, key=lambda trajectory: trajectory.finalized_at_ms)[-count:]


def _policies(settings: KafkaSettings, skipped: Skipped) -> dict[str, PolicyWeights]:
    return {
        item.record.policy: item.record
        for item in read_topic(settings, FLEET, skipped)
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
