"""Trajectories for the tests, written as their nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schemas.records import Reward, Trajectory, TrajectoryNode, VersionSpan


@dataclass(frozen=True)
class Run:
    """One node: token ids behind `parent_end` tokens of `parent`."""

    ids: Sequence[int]
    origin: str = "policy"
    turn: str = "t0"
    parent: int = -1
    parent_end: int = 0
    trained: bool = True
    versions: Sequence[int] = ()
    policy: str = ""
    logprobs: Sequence[float] = field(default_factory=tuple)


def trajectory(
    runs: Sequence[Run],
    session: str = "g-0.0.0",
    reward: float | None = 1.0,
    group: str = "g-0",
    sample: int = 0,
    attempt: int = 0,
    group_size: int = 1,
    min_group_size: int = 1,
    status: str = "complete",
    cause: str = "policy",
    purpose: str = "train",
    policy: str = "tiny",
) -> Trajectory:
    """The record of a session that consists of these nodes."""
    nodes, spans, masks, logprobs, start = [], [], [], [], 0
    for number, run in enumerate(runs):
        sampled = run.origin == "policy"
        node = TrajectoryNode(
            node_id=number,
            parent=run.parent,
            parent_end=run.parent_end,
            start=start,
            length=len(run.ids),
            origin=run.origin,
            turn_id=run.turn,
            policy=run.policy,
            log_offset=number,
        )
        nodes.append(node)
        masks.append(bytes([sampled and run.trained]) * len(run.ids))
        logprobs += list(run.logprobs) or [-0.5 if sampled else 0.0] * len(run.ids)
        for place, version in enumerate(run.versions or [0] * len(run.ids)):
            if sampled:
                spans.append(
                    VersionSpan(start=start + place, version_min=version, version_max=version)
                )
        start += len(run.ids)
    ids = [token for run in runs for token in run.ids]
    return Trajectory(
        session_id=session,
        policy=policy,
        purpose=purpose,
        group_id=group,
        sample=sample,
        attempt=attempt,
        group_size=group_size,
        min_group_size=min_group_size,
        tokens=np.array(ids, "<i4").tobytes(),
        logprobs=np.array(logprobs, "<f4").tobytes(),
        loss_mask=b"".join(masks),
        spans=tuple(spans),
        nodes=tuple(nodes),
        rewards=() if reward is None else (Reward(value=reward),),
        status=status,
        reason="",
        cause=cause,
        creation_version=0,
        turns=1,
        tokenizer_hash="h",
        partition=0,
        first_offset=0,
        last_offset=9,
        opened_at_ms=0,
        closed_at_ms=1,
        finalized_at_ms=2,
        fold_version=1,
    )


def one_turn(
    session: str, reward: float | None = 1.0, version: int = 0, length: int = 3, **fields: object
) -> Trajectory:
    """A session of one turn: two prompt tokens and `length` sampled ones."""
    runs = [
        Run([1, 2], origin="prompt"),
        Run(range(3, 3 + length), parent=0, parent_end=2, versions=[version] * length),
    ]
    return trajectory(runs, session, reward, **fields)  # type: ignore[arg-type]
