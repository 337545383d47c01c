"""Rewards that judges sent after the session had ended.

The manager refuses such a reward, and the session counts as `unrewarded`. The command stays on
`requests` for as long as that topic keeps records. `seamlessflow replay merge --late-rewards` gives
these rewards to their sessions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.schemas.records import (
    AssignReward,
    Record,
    Reward,
    RewardAssigned,
    SessionClosed,
    SessionFinalized,
)
from seamlessflow.schemas.topics import REQUESTS, SESSIONS

_SESSION = "session"


@dataclass(slots=True)
class LateRewards:
    """Fold over the rewards that sessions lack, and then over those that came nonetheless."""

    _awaited: dict[str, set[str]] = field(default_factory=dict)
    """By closed session, the judges that it still waits for."""
    _lacking: dict[str, set[str]] = field(default_factory=dict)
    """By session that has ended, the judges whose rewards it lacks."""
    _sent: dict[str, dict[tuple[str, str | None], Reward]] = field(default_factory=dict)

    def apply(self, event: Record) -> None:
        """Take in the next event on `sessions`."""
        match event:
            case SessionClosed(judges=judges) if judges:
                self._awaited[event.session_id] = {*judges}
            case RewardAssigned(failure="") if event.reward.scope == _SESSION:
                self._awaited.get(event.session_id, set()).discard(event.reward.name)
            case SessionFinalized():
                if lacking := self._awaited.pop(event.session_id, None):
                    self._lacking[event.session_id] = lacking

    def add(self, command: Record) -> None:
        """Take in the next command on `requests`; all events were taken in before."""
        if not isinstance(command, AssignReward) or command.failure:
            return
        reward = command.reward
        lacking = self._lacking.get(command.session_id, ())
        if reward.source == JUDGE and reward.name in lacking:
            sent = self._sent.setdefault(command.session_id, {})
            sent.setdefault((reward.name, reward.turn_id), reward)  # the first one counts

    def by_session(self) -> Mapping[str, tuple[Reward, ...]]:
        """Return the rewards by session, for the session and its turns.

        A judge sends the session's own reward last. If that is missing, the judge ended in between,
        and its rewards for turns are left out.
        """
        whole = {
            session: tuple(reward for (name, _), reward in sent.items() if (name, None) in sent)
            for session, sent in self._sent.items()
        }
        return {session: rewards for session, rewards in whole.items() if rewards}


def late_rewards(
    kafka: KafkaSettings, skipped: Skipped, stopping: Stopping = never
) -> Mapping[str, tuple[Reward, ...]]:
    """Return all sessions' late rewards by id; `skipped` counts unreadable commands.

    Raises what `read_topic` raises.
    """
    late = LateRewards()
    for event in read_topic(kafka, SESSIONS, Skipped(), stopping=stopping):
        late.apply(event.record)
    for command in read_topic(kafka, REQUESTS, skipped, stopping=stopping):
        late.add(command.record)
    return late.by_session()
