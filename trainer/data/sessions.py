"""Finalized sessions as the trainer keeps them: return and chains, or why they do not count.

A session counts only if the policy caused its end. A session that the environment or the
infrastructure spoilt leaves its group, and the sample may be tried again. Tokens that another
system sampled are trained only if the settings ask for it. Pure; called by the dataloader.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import xxhash

from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.schemas.records import Reward, SeedSession, Trajectory
from seamlessflow.schemas.tokens import FOREIGN, POLICY, TOKEN_BYTES
from seamlessflow.schemas.topics import Headers
from seamlessflow.trainer.credit import ONE_REWARD, Chaining
from seamlessflow.trainer.data.chains import (
    SAMPLED,
    Chain,
    TrajectoryMalformed,
    chains,
    forks,
    intervened_turns,
)
from seamlessflow.trainer.data.credit.returns import (
    RewardWeights,
    session_return,
    session_rewards,
    turn_returns,
    unjudged,
)
from seamlessflow.trainer.data.lengths import (
    NO_LENGTH,
    SessionLength,
    first_prompt_tokens,
    length_of,
    prompt_tokens,
)

PARENT = "parent"
"""Reason why a session is left out: it is the parent that the group's sessions go on from."""
_NO_LOGPROBS = "none"
"""An import's metadata `logprobs` if its file had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSource:
    """A session's identity and its record's place on `trajectories`."""

    session_id: str
    group_id: str
    sample: int
    attempt: int
    group_size: int
    min_group_size: int
    purpose: str
    partition: int
    offset: int
    trace: Headers = ()
    length: SessionLength = NO_LENGTH
    split: str = ""
    """Name of its task set; empty if the session was opened without one."""
    foreign: bool = False
    """True if another system sampled some of its tokens."""
    limit: str = ""
    """Limit that ended the policy, or empty: see `Trajectory.limit`."""
    task_id: str = ""
    turns: int = 0
    """Sampled turns."""
    prompt_tokens: int = 0
    """All its turns' prompt tokens in an evaluation, else 0."""
    first_prompt_tokens: int = 0
    first_offset: int = -1
    """Its first event's offset on `sessions`."""
    parent: str = ""
    """The run's ended session that it goes on from, if that counts in its group's baseline."""
    parent_return: float | None = None
    """That session's return."""
    text: str = ""
    """Hash over its sampled tokens, if it explores or samples an explored session again."""
    seed_session: SeedSession | None = None
    """Explored session that it samples again."""


@dataclass(frozen=True, slots=True)
class ValidSession:
    """A session that counts for its group."""

    source: SessionSource
    reward: float
    """Its return: the weighted sum of its rewards."""
    chains: tuple[Chain, ...]
    masked: Mapping[str, int]
    """Sampled tokens that are not trained, by reason."""

    version_min: int | None
    """Oldest policy version among its trained tokens, or None without any."""
    has_turn: bool = True
    """True if the policy sampled some of its tokens."""
    turn_rewards: Mapping[str, float] = field(default_factory=dict)
    """Each rewarded turn's rewards, summed by weight."""
    rewards: Mapping[str, Reward] = field(default_factory=dict)
    """Its session rewards by name, whether or not they count for its return."""
    punishment: float = 0.0
    """Added to its return for its length, at most 0; see `credit/overlong.py`."""
    left_out: str = ""
    """Reason why all its tokens are masked: a limit ended it, it is replaced, not selected, in no
    pair, or a parent. Empty: they are not."""
    compared: bool = True
    """True if its group's advantages compare returns with its return."""
    pool: str = ""
    """Pool that it was taken from; empty: it is new."""
    uses: int = 0
    """Steps that trained it before."""
    replaces: str = ""
    """Session whose place in a new group it takes."""
    chaining: Chaining = "merged"
    intervened: int = 0
    """Turns numbered below this precede its last intervention: an answer that others gave."""

    @property
    def shaped(self) -> float:
        """Return the return that advantage estimators see."""
        return self.reward + self.punishment

    @property
    def values(self) -> Mapping[str, float]:
        """Return its session rewards as values by name."""
        return {name: reward.value for name, reward in self.rewards.items()}

    def without(self, reason: str) -> "ValidSession":
        """Return the session left out for this reason, its tokens counted as masked."""
        masked = {**self.masked, reason: self.trained()}
        return replace(self, left_out=reason, masked=masked)

    @property
    def divided(self) -> bool:
        """Return True if some of its chains do not continue each other."""
        return forks(self.chains, self.chaining)

    def trained(self) -> int:
        """Return how many of its tokens may be trained."""
        return sum(chain.trained() for chain in self.chains)


@dataclass(frozen=True, slots=True)
class FailedSession:
    """A session that does not count.

    Its cause is `environment`, `infrastructure`, `setting` or `judge`.
    """

    source: SessionSource
    cause: str
    detail: str
    unrewarded: bool = False
    """True if it ended without a reward that it needs."""

    @property
    def final(self) -> bool:
        """Return True if its sample is not tried again: the settings or a judge left it out."""
        return self.cause in ("setting", JUDGE)


def read(
    trajectory: Trajectory,
    policy: str,
    partition: int,
    offset: int,
    trace: Headers = (),
    policies: Collection[str] = (),
    weights: RewardWeights = ONE_REWARD,
    chaining: Chaining = "merged",
) -> ValidSession | FailedSession:
    """Return a trajectory record's session, with the chains that train `policy`.

    Tokens from the other `policies` have their own trainers, so they do not count as masked.
    `weights`: each named reward's weight in the return, never 0.
    """
    source = _source(trajectory, partition, offset, trace)
    left = trajectory.status == "unrewarded"
    if trajectory.cause != "policy":
        return FailedSession(source, trajectory.cause, trajectory.reason, left)
    reward = session_return(trajectory, weights)
    if reward is None:
        left |= trajectory.status == "complete"
        return FailedSession(source, "environment", unjudged(trajectory, weights), left)
    if not math.isfinite(reward):
        return FailedSession(source, "environment", f"its rewards add up to {reward}")
    try:
        built = chains(trajectory, policy, policies, chaining)
    except TrajectoryMalformed as error:
        return FailedSession(source, "infrastructure", str(error))
    oldest = _version_min(built.chains)
    has_turn = _has_turn(trajectory, policy)
    of_turns = turn_returns(trajectory, weights)
    return ValidSession(
        source,
        reward,
        built.chains,
        built.masked,
        oldest,
        has_turn,
        of_turns,
        session_rewards(trajectory),
        chaining=chaining,
        intervened=intervened_turns(trajectory),
    )


def is_foreign(trajectory: Trajectory) -> bool:
    """Return True if another system sampled some tokens in the trajectory."""
    return any(node.origin == FOREIGN for node in trajectory.nodes)


def is_unscored(trajectory: Trajectory) -> bool:
    """Return True if the trajectory was imported from a file without log-probs."""
    return is_foreign(trajectory) and trajectory.metadata.get("logprobs") == _NO_LOGPROBS


def without_foreign(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory with its foreign tokens masked."""
    if not is_foreign(trajectory):
        return trajectory
    mask = bytearray(trajectory.loss_mask)
    count = 0
    for node in trajectory.nodes:
        if node.origin == FOREIGN:
            end = node.start + node.length
            count += sum(mask[node.start : end])
            mask[node.start : end] = bytes(node.length)
    if not count:
        return trajectory
    masked = {**trajectory.masked_tokens}
    masked[FOREIGN] = masked.get(FOREIGN, 0) + count
    return replace(trajectory, loss_mask=bytes(mask), masked_tokens=masked)


def parent_of(sessions: Sequence[ValidSession]) -> ValidSession | None:
    """Return the session that a group's sessions go on from, or None.

    Only its return counts. It has no tokens here: its own group trained them.
    """
    for session in sessions:
        source = session.source
        if source.parent_return is not None:
            parent = replace(source, session_id=source.parent, length=NO_LENGTH, parent_return=None)
            return ValidSession(parent, source.parent_return, (), {}, None, left_out=PARENT)
    return None


def _source(trajectory: Trajectory, partition: int, offset: int, trace: Headers) -> SessionSource:
    fork = trajectory.fork
    return SessionSource(
        session_id=trajectory.session_id,
        group_id=trajectory.group_id or trajectory.session_id,
        sample=trajectory.sample,
        attempt=trajectory.attempt,
        group_size=trajectory.group_size,
        min_group_size=trajectory.min_group_size,
        purpose=trajectory.purpose,
        split=trajectory.split,
        partition=partition,
        offset=offset,
        trace=trace,
        length=length_of(trajectory),
        foreign=is_foreign(trajectory),
        limit=trajectory.limit,
        task_id=trajectory.task_id,
        turns=trajectory.turns,
        prompt_tokens=prompt_tokens(trajectory) if trajectory.purpose == "eval" else 0,
        first_prompt_tokens=first_prompt_tokens(trajectory),
        first_offset=trajectory.first_offset,
        parent=fork.session_id if fork is not None and fork.parent_return is not None else "",
        parent_return=None if fork is None else fork.parent_return,
        text=_text(trajectory),
        seed_session=trajectory.seed_session,
    )


def _text(trajectory: Trajectory) -> str:
    """Return a hash over the sampled tokens, for comparison with another session, or empty."""
    if trajectory.purpose != "explore" and trajectory.seed_session is None:
        return ""
    places = ((n.start, n.start + n.length) for n in trajectory.nodes if n.origin == POLICY)
    sampled = (trajectory.tokens[begin * TOKEN_BYTES : end * TOKEN_BYTES] for begin, end in places)
    return xxhash.xxh3_64_hexdigest(b"".join(sampled))


def _has_turn(trajectory: Trajectory, policy: str) -> bool:
    sampled = (node for node in trajectory.nodes if node.origin in SAMPLED)
    return any((node.policy or trajectory.policy) == policy for node in sampled)


def _version_min(branches: tuple[Chain, ...]) -> int | None:
    if not branches:
        return None
    return min(int(chain.tokens.versions_T[chain.tokens.trained_T].min()) for chain in branches)
