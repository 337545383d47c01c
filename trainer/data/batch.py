"""Batches: the ready groups that one optimizer step trains, with their tokens and advantages.

Groups with the stalest tokens are taken first; arrival order would favour short sessions.
Pure; called by the dataloader when a batch is due, and with the recorded groups after a restart.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seamlessflow.schemas.records import ReplacedSession, StepGroup
from seamlessflow.schemas.topics import Headers
from seamlessflow.trainer.data.chains import Chain, credited
from seamlessflow.trainer.data.credit.overlong import kept, ruled
from seamlessflow.trainer.data.episodes import Episode, episode
from seamlessflow.trainer.data.filters import GroupView, verdict
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.lengths import SessionLength
from seamlessflow.trainer.data.methods import (
    METHOD_FAILED,
    MethodFailed,
    RecordedMethodFailed,
    checked_advantages,
    method,
)
from seamlessflow.trainer.data.pairs import SessionPair, paired
from seamlessflow.trainer.data.rules import BatchRules
from seamlessflow.trainer.data.selection import selected
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.data.staleness import Screened, StepClock, screen

REPLACED = "replaced"
"""Reason why tokens are masked: a stored session takes their session's place."""
ChainParts = tuple[tuple[Chain, ...], tuple[Chain, ...]]
"""A group's trained chains, and its chains that only count in means."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group, and its part that enters the loss."""

    group: Group
    chains: tuple[Chain, ...]
    """Trained chains, with their advantages."""

    counted: tuple[Chain, ...] = ()
    """Chains without a gradient, which count in the loss's means."""

    trainable: int = 0
    """Tokens that are neither masked nor stale; a filter may keep them out of the loss."""

    stale: int = 0
    """Tokens masked because they are stale."""

    over_age: int = 0
    """Tokens older than `max_staleness`, whatever `on_stale` does with them."""

    longest_stale: int = 0
    """Trained tokens in the longest chain with a stale token."""

    filtered: str = ""
    """Filter that keeps the group out of the loss; empty if none does."""

    dropped: tuple[str, str] | None = None
    """Reason and detail if the group must be dropped, else None."""

    reused: int = 0
    """Count of earlier steps that trained the group."""

    pairs: tuple[SessionPair, ...] = ()
    """Its pairs of trained sessions, if the loss compares pairs."""

    masked_after: Mapping[str, int] = field(default_factory=dict)
    """Tokens that masks took out of the loss after the batch was fixed, by mask."""

    @property
    def pool(self) -> str:
        """Return the group's pool; empty if the group is not stored."""
        return self.group.pool

    @property
    def credited(self) -> bool:
        """Return whether tokens enter the loss through its advantages."""
        return bool(self.chains) and not self.filtered

    def masked(self) -> Counter[str]:
        """Count its sampled tokens that are not trained, by reason; stale ones are included."""
        return self.group.masked() + Counter(stale=self.stale) + Counter(self.masked_after)

    def trained_sessions(self) -> list[tuple[ValidSession, list[Chain]]]:
        """Return the sessions whose returns its advantages compare, each with its chains.

        A session without a trained token has no chains.
        """
        compared = [session for session in self.group.members if session.compared]
        chains: dict[str, list[Chain]] = {session.source.session_id: [] for session in compared}
        for chain in self.chains:
            chains[chain.session_id].append(chain)
        return list(zip(compared, chains.values(), strict=True))

    def member(self, foreign: Collection[str]) -> StepGroup:
        """Return the group as `StepCommitted` records it.

        `foreign`: sessions in which another system sampled tokens.
        """
        names = tuple(session.source.session_id for session in self.group.sessions)
        members = (session.source.session_id for session in self.group.members)
        return StepGroup(
            group_id=self.group.group_id,
            sessions=names,
            foreign=tuple(name for name in members if name in foreign),
            reused=self.reused,
            filtered=self.filtered,
            pool=self.pool,
            replaced=tuple(
                ReplacedSession(
                    session_id=session.replaces,
                    by=session.source.session_id,
                    pool=session.pool,
                    uses=session.uses,
                )
                for session in self.group.stored
            ),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups that one optimizer step trains."""

    step: int
    groups: tuple[Prepared, ...]

    @property
    def new_groups(self) -> tuple[Prepared, ...]:
        """Return the new groups: neither trained by an earlier step nor stored."""
        return tuple(group for group in self.groups if not (group.reused or group.pool))

    @property
    def reused(self) -> tuple[Prepared, ...]:
        """Return the groups that earlier steps trained."""
        return tuple(group for group in self.groups if group.reused)

    @property
    def stored(self) -> tuple[ValidSession, ...]:
        """Return all sessions from pools."""
        members = (session for group in self.groups for session in group.group.members)
        return tuple(session for session in members if session.pool)

    def chains(self) -> list[Chain]:
        """Return all chains that enter the loss."""
        return [chain for group in self.groups for chain in group.chains]

    def counted(self) -> list[Chain]:
        """Return all chains that only count in the loss's means."""
        return [chain for group in self.groups for chain in group.counted]

    def trained(self) -> int:
        """Return how many tokens enter the loss."""
        return sum(chain.trained() for chain in self.chains())

    def trained_tokens(self) -> dict[str, int]:
        """Return how many tokens enter the loss, for each session with some."""
        tokens = Counter[str]()
        for chain in self.chains():
            tokens[chain.session_id] += chain.trained()
        return {session: count for session, count in tokens.items() if count}

    def foreign_tokens(self) -> dict[str, int]:
        """Return how many tokens enter the loss, for sessions in which another system sampled."""
        sources = [session.source for group in self.groups for session in group.group.members]
        foreign = {source.session_id for source in sources if source.foreign}
        trained = self.trained_tokens() if foreign else {}
        return {session: count for session, count in trained.items() if session in foreign}

    def lengths(self) -> list[SessionLength]:
        """Return the lengths of the sessions with tokens in the loss."""
        trained = self.trained_tokens()
        sources = (session.source for group in self.groups for session in group.group.members)
        return [source.length for source in sources if source.session_id in trained]

    def traces(self) -> list[Headers]:
        """Return its sessions' traces; a session that is not traced has none."""
        sources = (session.source for group in self.groups for session in group.group.sessions)
        return [source.trace for source in sources if source.trace]

    def members(self) -> tuple[StepGroup, ...]:
        """Return groups and sessions as `StepCommitted` records them."""
        foreign = self.foreign_tokens()
        return tuple(group.member(foreign) for group in self.groups)


@dataclass(frozen=True, slots=True)
class SkippedStep:
    """A step in which there is nothing to train."""

    step: int


@dataclass(slots=True)
class Selection:
    """A batch's groups, and the groups that must be dropped instead."""

    chosen: list[Prepared] = field(default_factory=list)
    dropped: list[Prepared] = field(default_factory=list)


def in_order(ready: Iterable[Group], clock: StepClock, rules: BatchRules) -> list[Group]:
    """Return groups in the order in which steps take them: the one with the stalest token first.

    Equally old groups keep the order in which they became ready. A recording's groups are ordered
    by name instead.
    """
    ordered = sorted(ready, key=lambda candidate: candidate.group_id) if rules.recorded else ready
    return sorted(ordered, key=lambda candidate: -_age(candidate, clock))


def select(ready: Iterable[Group], count: int, clock: StepClock, rules: BatchRules) -> Selection:
    """Return up to `count` groups by `in_order`. A group is dropped if a method fails for it."""
    selection = Selection()
    for group in in_order(ready, clock, rules):
        try:
            prepared = prepare(group, clock, rules)
        except MethodFailed as error:
            prepared = Prepared(group, (), dropped=(METHOD_FAILED, str(error)))
        if prepared.dropped:
            selection.dropped.append(prepared)
        else:
            selection.chosen.append(prepared)
        if len(selection.chosen) == count:
            break
    return selection


def recorded_batch(
    step: int, groups: Iterable[Group], clock: StepClock, rules: BatchRules
) -> Batch:
    """Return a recorded step's batch, with all its groups.

    Raises `RecordedMethodFailed`.
    """
    prepared = []
    for group in groups:
        try:
            prepared.append(prepare(group, clock, rules))
        except MethodFailed as error:
            raise RecordedMethodFailed(step, group.group_id, error) from error
    return Batch(step, tuple(prepared))


def prepare(group: Group, clock: StepClock, rules: BatchRules) -> Prepared:
    """Return the group with its part that enters the loss.

    Advantages are computed over all its sessions, or over the selected ones, whether or not any of
    their tokens is trained. Raises `MethodFailed`.
    """
    group, pairs = _chosen(_exchanged(ruled(group, rules.overlong)), rules)
    compared = [session for session in group.members if session.compared]
    episodes = _episodes(compared)
    chains = kept(group, _credited(compared, episodes, rules))
    if pairs:
        # A placeholder that filters see; the step computes the real advantages.
        chains = [credited(chain, 1.0) for chain in chains]
    limits = {
        session.source.session_id: rules.pools[session.pool]
        for session in group.members
        if session.pool
    }
    screened = screen(chains, clock, rules.max_staleness, limits)
    over_age = screened.lost
    if rules.on_stale == "correct":
        screened = Screened(tuple(chains), 0, 0)
    dropped = _dropped(group, chains, screened, rules)
    decision = verdict(
        rules.filters, GroupView(episodes, screened.chains), rules.returns, rules.functions
    )
    if decision and decision[1] == "drop" and dropped is None:
        dropped = ("filtered", _why(decision[0], group))
    trained: tuple[Chain, ...] = () if dropped else screened.chains
    counted: tuple[Chain, ...] = ()
    if decision and not dropped:
        trained, counted = _without_credit(screened.chains, rules)
    trainable = sum(chain.trained() for chain in screened.chains)
    return Prepared(
        group,
        reused=group.uses,
        chains=trained,
        counted=counted,
        trainable=trainable,
        stale=screened.lost,
        over_age=over_age,
        longest_stale=screened.longest_lost,
        filtered=decision[0] if decision else "",
        dropped=dropped,
        pairs=() if decision or dropped else pairs,
    )


def _exchanged(group: Group) -> Group:
    """Return the group with those sessions masked whose places stored sessions take.

    Their returns do not count for advantages.
    """
    out = {session.replaces for session in group.stored}
    if not out:
        return group
    sessions = tuple(
        replace(session.without(REPLACED), compared=False)
        if session.source.session_id in out
        else session
        for session in group.sessions
    )
    return replace(group, sessions=sessions)


def _chosen(group: Group, rules: BatchRules) -> tuple[Group, tuple[SessionPair, ...]]:
    """Return the group, its untrained sessions marked left out, and its pairs."""
    if rules.selection.name:
        group = selected(group, _episodes(group.members), rules.selection)
    if rules.pairs.name:
        return paired(group, _episodes(group.members), rules.pairs)
    return group, ()


def _without_credit(chains: Sequence[Chain], rules: BatchRules) -> ChainParts:
    """Return a group's chains without advantages: those to train, and those that only count.

    A loss with a term for each token trains them all; any other loss only counts them.
    """
    without = tuple(credited(chain, 0.0) for chain in chains)
    return (without, ()) if rules.regularised else ((), without)


def _episodes(sessions: Sequence[ValidSession]) -> list[Episode]:
    """Return sessions as methods see them."""
    return [
        episode(session.chains, session.shaped, session.turn_rewards, session.values)
        for session in sessions
    ]


def _credited(
    sessions: Sequence[ValidSession], episodes: Sequence[Episode], rules: BatchRules
) -> list[Chain]:
    """Return these sessions' chains with their advantages."""
    with method("advantage estimator", rules.advantage):
        advantages = checked_advantages(rules.estimator(episodes), episodes)
    chains = []
    for session, advantages_N in zip(sessions, advantages, strict=True):
        ends = np.cumsum([chain.trained() for chain in session.chains])
        parts = np.split(advantages_N, ends[:-1]) if session.chains else []
        chains += [credited(*pair) for pair in zip(session.chains, parts, strict=True)]
    return chains


def _dropped(
    group: Group, chains: Sequence[Chain], screened: Screened, rules: BatchRules
) -> tuple[str, str] | None:
    if not screened.lost or (rules.on_stale != "drop" and screened.chains):
        return None
    tokens = sum(chain.trained() for chain in chains)
    return "stale", f"{screened.lost} of {tokens} tokens are older than {rules.max_staleness} steps"


def _why(rule: str, group: Group) -> str:
    masked = sorted(group.masked().items())
    listed = ", ".join(f"{count} {reason}" for reason, count in masked)
    return f"{rule}; masked tokens: {listed}" if listed else rule


def _age(group: Group, clock: StepClock) -> int:
    version = group.version_min()
    return clock.now + 1 if version is None else clock.age(version)
