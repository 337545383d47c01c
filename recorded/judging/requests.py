"""Requests for judgements on one partition of `sessions`: which are due, which are over. Pure.

A request is the event `SessionClosed` that names judges. It is over with its judge's
`RewardAssigned`, or when the session ends. All of this follows from the log. So a reward worker
that takes a partition over folds it from its oldest open session on, and goes on where the log
ends.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from seamlessflow.consumers.trajectories.sessions.message_keys import any_strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.recorded.judging.judged_session import JudgedSession, judged_session
from seamlessflow.recorded.judging.verdict import JudgesWord, Unrewarded
from seamlessflow.schemas.records import (
    AssignReward,
    CommandRefused,
    Record,
    Reward,
    RewardAssigned,
    SessionClosed,
    SessionFinalized,
)

_COMMAND = f".{JUDGE}."
_KEPT_MS = 86_400_000
"""Time after its deadline in which the manager must read a reward, to record or refuse it."""


class JudgementKey(NamedTuple):
    """A session and a judge, which rewards it once."""

    session_id: str
    judge: str


@dataclass(frozen=True, slots=True)
class DueJudgement:
    """A judgement to make."""

    key: JudgementKey
    deadline_ms: int
    session: JudgedSession
    """The session as the judge gets it, except for the task."""


@dataclass(frozen=True, slots=True)
class Over:
    """Judgements that are over: answered, or without a use because their session has ended."""

    keys: Collection[JudgementKey] = ()
    ended: bool = False
    """True if they are late: a try under way may go on to its end."""


@dataclass(slots=True)
class RequestedPartition:
    """A partition's sessions, and the judgements that they wait for."""

    log: LoggedPartition
    _due: dict[JudgementKey, None] = field(default_factory=dict)
    """Judgements that were not handed out yet."""
    _asked: dict[JudgementKey, None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Reasons why rewards were refused, until they are counted."""
    spreads: list[float] = field(default_factory=list)
    """Differences between the judges' rewards for a session, until they are observed."""

    def apply(self, event: Record, offset: int) -> Over:
        """Apply the next event; return the judgements that are over with it."""
        folded = self.log.apply(event, offset, any_strictness)
        if isinstance(event, CommandRefused) and _COMMAND in event.command_id:
            self.refused.append(event.reason)
        session = folded.session
        if session is None or not folded.accepted:
            return Over()
        match event:
            case SessionClosed(judges=judges) if judges:
                lacking = session.lacking_judges
                self._due |= {JudgementKey(session.session_id, name): None for name in lacking}
            case RewardAssigned() if event.reward.scope == "session":
                return Over(self._forget([JudgementKey(session.session_id, event.reward.name)]))
            case SessionFinalized():
                del self.log.sessions[session.session_id]
                judges = () if session.closed is None else session.closed.judges
                values = [
                    reward.value
                    for reward in session.rewards.values()
                    if reward.source == JUDGE and reward.scope == "session"
                ]
                if len(values) > 1:
                    self.spreads.append(max(values) - min(values))
                keys = [JudgementKey(session.session_id, name) for name in judges]
                return Over(self._forget(keys), ended=True)
        return Over()

    def take_due(self) -> Iterator[DueJudgement]:
        """Yield the judgements that are due now, each once.

        Call it only after reading all that the log had when the partition was taken over.
        """
        for session_id, keys in groupby(list(self._due), lambda key: key.session_id):
            session = self.log.sessions[session_id]
            judged = judged_session(session)
            for key in keys:
                del self._due[key]
                self._asked[key] = None
                deadline_ms = 0 if session.closed is None else session.closed.await_reward_until_ms
                yield DueJudgement(key, deadline_ms, judged)

    @property
    def rebuild_from(self) -> tuple[int, int]:
        """Offset from which the open sessions can be folded again, and the epoch in force there."""
        oldest = next(iter(self.log.sessions.values()), None)
        if oldest is None:
            return self.log.position, self.log.epoch
        return oldest.first_offset, oldest.opened.epoch

    @property
    def keys(self) -> list[JudgementKey]:
        """Judgements that were handed out and are not over."""
        return list(self._asked)

    def _forget(self, keys: Collection[JudgementKey]) -> Collection[JudgementKey]:
        """Forget these judgements; return those that were handed out."""
        asked = [key for key in keys if key in self._asked]
        for key in keys:
            self._due.pop(key, None)
            self._asked.pop(key, None)
        return asked


def reward_commands(
    key: JudgementKey, verdict: JudgesWord, now_ms: int, deadline_ms: int
) -> list[AssignReward]:
    """Return the commands that record a judge's rewards, or why it gives none.

    Their ids follow from session, judge and turn, so each has one effect however often it is sent.
    The session's own reward comes last: the session waits only for that.
    """
    if isinstance(verdict, Unrewarded):
        nothing = Reward(name=key.judge, value=0.0, source=JUDGE)
        return [_command(key, nothing, now_ms, deadline_ms, verdict.reason)]
    rewards = [
        Reward(name=key.judge, value=value, scope="turn", turn_id=turn, source=JUDGE)
        for turn, value in verdict.turns.items()
    ]
    rewards.append(Reward(name=key.judge, value=verdict.value, source=JUDGE))
    return [_command(key, reward, now_ms, deadline_ms) for reward in rewards]


def _command(
    key: JudgementKey, reward: Reward, now_ms: int, deadline_ms: int, failure: str = ""
) -> AssignReward:
    name = f"{key.session_id}{_COMMAND}{key.judge}"
    if reward.turn_id is not None:
        name = f"{name}.{reward.turn_id}"
    return AssignReward(
        command_id=name,
        session_id=key.session_id,
        issued_at_ms=now_ms,
        expires_at_ms=max(now_ms, deadline_ms) + _KEPT_MS,
        reward=reward,
        final=False,
        idempotency_key=name,
        failure=failure,
    )
