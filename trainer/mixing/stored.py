"""Stored sessions as a step trains them: read from a pool's record. Pure.

Another log's versions mean nothing in this run, and its ids may also exist in this run. So its
tokens get the version `ELSEWHERE`, and its ids begin with the pool's name.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from seamlessflow.schemas.records import Trajectory, VersionSpan
from seamlessflow.trainer.credit import Chaining
from seamlessflow.trainer.data.chains import ELSEWHERE, Chain
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return
from seamlessflow.trainer.data.sessions import (
    FailedSession,
    ValidSession,
    is_foreign,
    is_unscored,
    read,
)
from seamlessflow.trainer.mixing.pools import StoredGroup, StoredSession
from seamlessflow.trainer.stored import OWN

_OTHERS = {"eval": "of an evaluation", "explore": "of an exploration", "judge": "of a judge"}


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The settings by which records become stored sessions."""

    policy: str
    weights: RewardWeights
    tokenizer_hash: str | None
    """Hash of the policy's tokenizer; another tokenizer's token ids mean other text. None: not
    compared, since a recorded step chose the sessions."""
    policies: Collection[str] = ()
    """All the run's policies."""
    chaining: Chaining = "merged"


def left_out(trajectory: Trajectory, rules: StoredRules) -> str:
    """Return why another log's record is no stored session; empty if it is one."""
    if trajectory.purpose in _OTHERS:
        return _OTHERS[trajectory.purpose]
    if trajectory.cause != "policy" or session_return(trajectory, rules.weights) is None:
        return "without a return"
    # Imported files often do not name the tokenizer that they were made with.
    unnamed = is_foreign(trajectory) and not trajectory.tokenizer_hash
    if rules.tokenizer_hash not in (None, trajectory.tokenizer_hash) and not unnamed:
        return "of another tokenizer"
    return "" if any(trajectory.loss_mask) else "without a token to train"


def stored_group(
    pool: str, trajectory: Trajectory, rules: StoredRules, partition: int, offset: int
) -> StoredGroup:
    """Return the group that another log's record belongs to, with only this session."""
    reward = session_return(trajectory, rules.weights) or 0.0
    session = StoredSession(f"{pool}/{trajectory.session_id}", partition, offset, reward)
    return StoredGroup(
        pool, f"{pool}/{_group_of(trajectory)}", trajectory.task_id, None, (session,)
    )


def stored_session(
    pool: str, trajectory: Trajectory, rules: StoredRules, partition: int, offset: int
) -> ValidSession | FailedSession:
    """Return the session that a pool's record holds, with the chains that are trained."""
    if pool == OWN:
        made = read(
            trajectory,
            rules.policy,
            partition,
            offset,
            policies=rules.policies,
            weights=rules.weights,
            chaining=rules.chaining,
        )
        return replace(made, pool=OWN) if isinstance(made, ValidSession) else made
    unscored = is_unscored(trajectory)
    named = replace(
        trajectory,
        session_id=f"{pool}/{trajectory.session_id}",
        group_id=f"{pool}/{_group_of(trajectory)}",
        # An imported file has no versions; without any its tokens would be masked as inexact.
        spans=(VersionSpan(start=0, version_min=0, version_max=0),)
        if is_foreign(trajectory)
        else trajectory.spans,
    )
    made = read(
        named,
        trajectory.policy,
        partition,
        offset,
        weights=rules.weights,
        chaining=rules.chaining,
    )
    if isinstance(made, FailedSession):
        return made
    chains = tuple(_elsewhere(chain, unscored) for chain in made.chains)
    return replace(made, chains=chains, version_min=None, pool=pool)


def _elsewhere(chain: Chain, unscored: bool) -> Chain:
    tokens = chain.tokens
    versions_T = np.where(tokens.versions_T >= 0, ELSEWHERE, tokens.versions_T).astype(np.int32)
    logprobs_T = tokens.logprobs_T
    if unscored:
        logprobs_T = np.where(tokens.trained_T, np.nan, logprobs_T).astype(np.float32)
    return replace(chain, tokens=replace(tokens, versions_T=versions_T, logprobs_T=logprobs_T))


def _group_of(trajectory: Trajectory) -> str:
    return trajectory.group_id or trajectory.session_id
