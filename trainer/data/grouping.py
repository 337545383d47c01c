"""Grouping: collects sessions into groups, and decides which group is ready or dropped.

Pure: finalized sessions and deadlines in, records for `control` out. A group takes each sample's
first valid session until it has as many as it asks for. At its deadline, or once the other samples
have no attempt left, it is ready with fewer, or dropped. An earlier process's records stay valid:
settled groups take no session, and a group recorded as ready waits for exactly its recorded
sessions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.worker.judged_rewards import JUDGE, JUDGE_FAILED
from seamlessflow.schemas.records import GroupDropped, GroupReady, Record, SampleFailed
from seamlessflow.trainer.data.figures.chances import passed
from seamlessflow.trainer.data.sessions import (
    FailedSession,
    SessionSource,
    ValidSession,
    parent_of,
)


class MemberLost(SeamlessFlowError):
    """A recorded group's session that does not count under the present settings."""

    lasting = True

    def __init__(self, lost: FailedSession) -> None:
        self.session_id = lost.source.session_id
        self.group_id = lost.source.group_id
        super().__init__(
            f"session {self.session_id} is recorded as one of group {self.group_id}, and does not "
            f"count under the present settings: {lost.detail}; go on with the settings that the "
            "group was recorded under (trainer.rewards)"
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A group whose sessions are fixed."""

    group_id: str
    sessions: tuple[ValidSession, ...]
    pool: str = ""
    """Pool that it was taken from; empty: it is new."""
    uses: int = 0
    """Earlier steps that trained it, for a stored group."""
    stored: tuple[ValidSession, ...] = ()
    """Stored sessions that take the places of some of its sessions."""

    @property
    def members(self) -> tuple[ValidSession, ...]:
        """Return its sessions, the stored ones, and the parent that its sessions go on from.

        Only the parent's return counts, as one more in the baseline.
        """
        parent = parent_of(self.sessions)
        return self.sessions + self.stored + (() if parent is None else (parent,))

    def with_members(self, members: Sequence[ValidSession]) -> "Group":
        """Return the group with these sessions instead of its own, in the order of `members`."""
        count = len(self.sessions)
        stored = tuple(members[count : count + len(self.stored)])
        return replace(self, sessions=tuple(members[:count]), stored=stored)

    def returns(self) -> list[float]:
        """Return each session's return: the weighted sum of its rewards."""
        return [session.reward for session in self.sessions]

    def shaped(self) -> list[float]:
        """Return each session's return as advantage estimators see it."""
        return [session.shaped for session in self.sessions]

    def version_min(self) -> int | None:
        """Return the oldest policy version among its trained tokens, or None without any."""
        versions = (session.version_min for session in self.sessions)
        return min((version for version in versions if version is not None), default=None)

    def masked(self) -> Counter[str]:
        """Count its sampled tokens that are not trained, by reason."""
        return sum((Counter(session.masked) for session in self.sessions), Counter[str]())


@dataclass(slots=True)
class _Open:
    """A group that still takes sessions."""

    by_sample: dict[int, ValidSession] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    """Ids of all its sessions so far, valid or not."""
    failed: dict[int, FailedSession] = field(default_factory=dict)
    """Newest failed attempt at each sample."""

    def settled(self, attempts: int | None) -> int:
        """Return how many samples have a valid session or no attempt left."""
        spent = {
            sample
            for sample, session in self.failed.items()
            if session.final or (attempts is not None and session.source.attempt + 1 >= attempts)
        }
        return len(self.by_sample.keys() | spent)

    def newest_failure(self) -> str:
        """Return a colon and the newest failure's last line; empty without one."""
        newest = max(self.failed.values(), key=lambda session: session.source.offset, default=None)
        lines = newest.detail.splitlines() if newest else []
        return f": {lines[-1]}" if lines else ""


class Grouping:
    """All groups that are neither consumed nor dropped."""

    def __init__(
        self,
        settled: Iterable[str] = (),
        fixed: Mapping[str, Sequence[str]] | None = None,
        attempts: int | None = None,
        redundancy: int = 0,
    ) -> None:
        """`settled`: groups that are over. `fixed`: sessions of groups recorded as ready, by group.
        `attempts`: tries at a sample; None: as many as its group's deadline allows. `redundancy`:
        further samples that a group for training begins, beyond those that it asks for.
        """
        self._attempts = attempts
        self._redundancy = redundancy
        self._settled = set(settled)
        self._fixed = {group: tuple(sessions) for group, sessions in (fixed or {}).items()}
        self._open: dict[str, _Open] = {}
        self.ready: dict[str, Group] = {}
        """Groups for training, in the order they became ready."""

        self.ignored: Counter[str] = Counter()
        """Sessions that changed nothing, by reason."""

    def add(self, session: ValidSession | FailedSession, now_ms: int) -> list[Record]:
        """Add a finalized session; return the records that follow from it. Raises `MemberLost`."""
        source = session.source
        if reason := self._reason_to_ignore(source):
            self.ignored[reason] += 1
            return []
        group = self._open.setdefault(source.group_id, _Open())
        group.seen.add(source.session_id)
        if isinstance(session, FailedSession):
            if source.group_id in self._fixed:
                raise MemberLost(session)  # the group would wait for it forever
            failed = self._failed(session, group, now_ms)
            if session.cause == JUDGE:  # more tries cost agents, and do not repair the judge
                return [failed, self.drop(source.group_id, JUDGE_FAILED, session.detail, now_ms)]
            return [failed, *self._without_attempts(source, group, now_ms)]
        group.by_sample[source.sample] = session
        return self._complete(source, group, now_ms)

    def expire(self, group_id: str, now_ms: int) -> list[Record]:
        """Make a group whose deadline has passed ready with the sessions it has, or drop it."""
        if group_id in self._settled or group_id in self.ready or group_id in self._fixed:
            return []
        group = self._open.get(group_id, _Open())
        return self._end(group_id, group, "expired", "at the deadline", now_ms)

    def _without_attempts(self, source: SessionSource, group: _Open, now_ms: int) -> list[Record]:
        """End a group early if all its samples are settled and some of them failed."""
        begun = source.group_size + (self._redundancy if source.purpose == "train" else 0)
        if group.settled(self._attempts) < begun:
            return []
        return self._end(source.group_id, group, "too_few", "and no attempt left", now_ms)

    def _end(self, group_id: str, group: _Open, short: str, when: str, now_ms: int) -> list[Record]:
        """Make a group ready with the sessions it has, or drop it.

        The reason to drop is `failed` if all its sessions failed, else `short`.
        """
        have = list(group.by_sample.values())
        if have and len(have) >= have[0].source.min_group_size:
            return self._make_ready(group_id, have, now_ms)
        reason = "failed" if group.failures and not have else short
        failures = [f"{n} spoilt by {cause}" for cause, n in group.failures.items()]
        detail = ", ".join([f"{len(have)} sessions {when}", *failures])
        return [self.drop(group_id, reason, detail + group.newest_failure(), now_ms)]

    def open_groups(self) -> list[str]:
        """Return the groups that take sessions and are not recorded as ready."""
        return [name for name in self._open if name not in self._fixed]

    def drop(self, group_id: str, reason: str, detail: str, now_ms: int) -> GroupDropped:
        """Drop a group; return its `GroupDropped`."""
        self.settle(group_id)
        return GroupDropped(at_ms=now_ms, group_id=group_id, reason=reason, detail=detail)

    def settle(self, group_id: str) -> None:
        """End a group; its further sessions are ignored."""
        self._settled.add(group_id)
        self._fixed.pop(group_id, None)
        self.ready.pop(group_id, None)
        self._open.pop(group_id, None)

    def held(self) -> list[SessionSource]:
        """Return all sessions in groups that are not over; a restart must read them again."""
        held = [session.source for group in self.ready.values() for session in group.sessions]
        for group in self._open.values():
            held += [session.source for session in group.by_sample.values()]
            held += [session.source for session in group.failed.values()]
        return held

    def _reason_to_ignore(self, source: SessionSource) -> str:
        """Return the reason to ignore a session, or an empty string."""
        if source.group_id in self._settled or source.group_id in self.ready:
            return "late"
        group = self._open.get(source.group_id, _Open())
        if source.session_id in group.seen:
            return "duplicate"
        if source.sample in group.by_sample:
            return "sample_taken"
        fixed = self._fixed.get(source.group_id)
        return "not_a_member" if fixed and source.session_id not in fixed else ""

    def _failed(self, session: FailedSession, group: _Open, now_ms: int) -> SampleFailed:
        source = session.source
        group.failures[session.cause] += 1
        earlier = group.failed.get(source.sample)
        if earlier is None or earlier.source.attempt < source.attempt:
            group.failed[source.sample] = session
        return SampleFailed(
            at_ms=now_ms,
            group_id=source.group_id,
            sample=source.sample,
            attempt=source.attempt,
            cause=session.cause,
            detail=session.detail,
        )

    def _complete(self, source: SessionSource, group: _Open, now_ms: int) -> list[Record]:
        group_id = source.group_id
        fixed = self._fixed.get(group_id)
        by_id = {session.source.session_id: session for session in group.by_sample.values()}
        if fixed is not None:
            # Recorded as ready already, so no record follows; the recorded order decides.
            if len(by_id) == len(fixed):
                self._keep(Group(group_id, tuple(by_id[name] for name in fixed)))
            return []
        sessions = list(group.by_sample.values())
        if len(sessions) < source.group_size:
            return self._without_attempts(source, group, now_ms)
        return self._make_ready(group_id, sessions, now_ms)

    def _make_ready(self, group_id: str, sessions: list[ValidSession], now_ms: int) -> list[Record]:
        group = Group(group_id, tuple(sorted(sessions, key=lambda session: session.source.sample)))
        sources = [session.source for session in group.sessions]
        self._keep(group)
        returns = np.array(group.returns())
        return [
            GroupReady(
                at_ms=now_ms,
                group_id=group_id,
                sessions=tuple(source.session_id for source in sources),
                reward_mean=float(returns.mean()),
                reward_std=float(returns.std()),
                version_min=group.version_min(),
                trainable_tokens=sum(session.trained() for session in group.sessions),
                passed=passed(group.returns()),
                returns=tuple(group.returns()),
                turns=tuple(source.turns for source in sources),
                first_offsets=tuple(source.first_offset for source in sources),
                lengths=tuple(source.length.tokens for source in sources),
                texts=tuple(source.text for source in sources if source.purpose == "explore"),
                prompt_tokens=tuple(
                    source.prompt_tokens for source in sources if source.purpose == "eval"
                ),
            )
        ]

    def _keep(self, group: Group) -> None:
        if group.sessions[0].source.purpose != "train":
            self.settle(group.group_id)
        else:
            self._open.pop(group.group_id, None)
            self.ready[group.group_id] = group
