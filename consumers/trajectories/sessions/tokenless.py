"""Trajectories without tokens, for sessions that failed, were not assembled, or are too large.

Pure. A failed session keeps only its identity and the time of its end. A later release whose rules
do not fail at its events finds the same identity and time.
"""

from collections import Counter
from dataclasses import replace

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import SessionClosed, Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import POLICY
from seamlessflow.schemas.topics import TRAJECTORIES

TOO_LARGE = "too_large"
# A token has an id, a log-prob and a mask byte. The other two numbers are generous estimates: a
# node's fields and spans, and everything else in the record.
_BYTES_A_TOKEN = 9
_BYTES_A_NODE = 512
_ENVELOPE_BYTES = 262_144
_STATUS = "aborted"
_CAUSE = "infrastructure"


def end_of(session: Session) -> tuple[SessionClosed, int]:
    """Return what closed a session, and its finalizing time. Raises `ValueError` without one."""
    if session.closed is None or session.finalized_at_ms is None:
        raise ValueError(f"session {session.session_id} is not finalized")
    return session.closed, session.finalized_at_ms


def without_tokens(session: Session, partition: int, reason: str) -> Trajectory:
    """Return a finalized session's aborted trajectory. Raises `ValueError` if not finalized."""
    opened = session.opened
    (closed, finalized_at_ms) = end_of(session)
    return Trajectory(
        session_id=opened.session_id,
        policy=opened.policy,
        purpose=opened.purpose,
        split=opened.split,
        task_id=opened.task_id,
        group_id=opened.group_id or opened.session_id,
        sample=opened.sample,
        attempt=opened.attempt,
        group_size=opened.group_size,
        min_group_size=opened.min_group_size,
        pinned_version=opened.pinned_version,
        metadata=opened.metadata,
        tokens=b"",
        logprobs=b"",
        loss_mask=b"",
        spans=(),
        nodes=(),
        rewards=(),
        status=_STATUS,
        reason=reason,
        cause=_CAUSE,
        creation_version=opened.creation_version,
        turns=0,
        interrupted_turns=0,
        match_rules={},
        masked_tokens={},
        ignored_events={},
        tokenizer_hash=opened.tokenizer_hash,
        partition=partition,
        first_offset=session.first_offset,
        last_offset=session.last_offset,
        opened_at_ms=opened.at_ms,
        closed_at_ms=closed.at_ms,
        finalized_at_ms=finalized_at_ms,
        fold_version=opened.fold_version,
        fork=None if opened.fork is None else opened.fork.origin,
        seed_session=opened.seed_session,
    )


def fitting(whole: Trajectory, limit: int = TRAJECTORIES.max_record_bytes) -> Trajectory:
    """Return the trajectory itself, or without tokens if it would take more than `limit` bytes."""
    size = _BYTES_A_TOKEN * len(whole.loss_mask) + _BYTES_A_NODE * len(whole.nodes)
    if size + _ENVELOPE_BYTES <= limit:
        return whole
    return replace(
        whole,
        tokens=b"",
        logprobs=b"",
        loss_mask=b"",
        spans=(),
        nodes=(),
        status=_STATUS,
        reason=f"{TOO_LARGE}: {size} bytes",
        cause=_CAUSE,
        masked_tokens=Counter({TOO_LARGE: sum(map(_sampled, whole.nodes))}),
    )


def _sampled(node: TrajectoryNode) -> int:
    return node.length if node.origin == POLICY else 0
