"""Sessions as the log has them now. Called by `seamlessflow show`."""

from dataclasses import dataclass

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.show.observed import ObservedSession, observed_at
from seamlessflow.recorded.show.policies import PolicyLookup
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES


class UnknownSession(SeamlessFlowError):
    """The log contains no event of a session."""

    def __init__(self, session_id: str, events: int, begin: int = 0) -> None:
        """`begin`: offset of the first event that retention left in its partition."""
        self.session_id, self.events, self.begin = session_id, events, begin
        reason = f"no session {session_id} among {events} events of its partition"
        if begin:
            reason += f"; it begins at offset {begin}: retention removed what was before"
        super().__init__(reason)


@dataclass(frozen=True)
class LoggedSession:
    """A session, the tokenizer of its policy, None if it is unknown, and its place on the log."""

    session: Session
    tokenizer: Tokenizer | None
    place: str
    """Offsets of its events, and its partition, in words."""


def load_session(
    settings: KafkaSettings, session_id: str, skipped: Skipped, at: int | None = None
) -> LoggedSession:
    """Fold the events of a session, by id or by name (the latest), up to offset `at` included.

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


def recent_trajectories(settings: KafkaSettings, count: int, skipped: Skipped) -> list[Trajectory]:
    """Return the sessions that were finalized last, the newest at the end."""
    trajectories = [
        item.record
        for item in read_topic(settings, TRAJECTORIES, skipped)
        if isinstance(item.record, Trajectory)
    ]
    return sorted(trajectories, key=lambda trajectory: trajectory.finalized_at_ms)[-count:]
