"""Builders of trajectories, which tests describe by their nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from seamlessflow.schemas.records import Reward, Trajectory, TrajectoryNode, VersionSpan


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
    temperature: float = 1.0
    intervened: bool = False

    @property
    def sampled(self) -> bool:
        return self.origin == "policy"


NOTHING = Trajectory(
    session_id="",
    policy="",
    tokens=b"",
    logprobs=b"",
    loss_mask=b"",
    spans=(),
    nodes=(),
    rewards=(),
    status="",
    reason="",
    cause="",
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
"""Fields that are the same in all of them."""


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
    starts = accumulate((len(run.ids) for run in runs), initial=0)
    placed = list(zip(starts, runs, strict=False))
    return replace(
        NOTHING,
        session_id=session,
        policy=policy,
        purpose=purpose,
        group_id=group,
        sample=sample,
        attempt=attempt,
        group_size=group_size,
        min_group_size=min_group_size,
        status=status,
        cause=cause,
        rewards=() if reward is None else (Reward(value=reward),),
        tokens=np.array([token for run in runs for token in run.ids], "<i4").tobytes(),
        logprobs=np.array([value for run in runs for value in _logprobs(run)], "<f4").tobytes(),
        loss_mask=b"".join(bytes([run.sampled and run.trained]) * len(run.ids) for run in runs),
        spans=tuple(span for start, run in placed for span in _spans(start, run)),
        nodes=tuple(_node(number, start, run) for number, (start, run) in enumerate(placed)),
    )


def _node(number: int, start: int, run: Run) -> TrajectoryNode:
    return TrajectoryNode(
        node_id=number,
        parent=run.parent,
        parent_end=run.parent_end,
        start=start,
        length=len(run.ids),
        origin=run.origin,
        turn_id=run.turn,
        policy=run.policy,
        logprob_temperature=run.temperature,
        log_offset=number,
        intervened=run.intervened,
    )


def _logprobs(run: Run) -> Sequence[float]:
    return run.logprobs or [-0.5 if run.sampled else 0.0] * len(run.ids)


def _spans(start: int, run: Run) -> list[VersionSpan]:
    versions = run.versions or [0] * len(run.ids)
    return [
        VersionSpan(start=start + place, version_min=version, version_max=version)
        for place, version in enumerate(versions)
        if run.sampled
    ]


def one_turn(
    session: str, reward: float | None = 1.0, version: int = 0, length: int = 3, **fields: object
) -> Trajectory:
    """A session of one turn: two prompt tokens and `length` sampled ones."""
    runs = [
        Run([1, 2], origin="prompt"),
        Run(range(3, 3 + length), parent=0, parent_end=2, versions=[version] * length),
    ]
    return trajectory(runs, session, reward, **fields)  # type: ignore[arg-type]


def masked_whole(made: Trajectory, reason: str) -> Trajectory:
    """Return the session with all its sampled tokens masked for one reason."""
    sampled = sum(node.length for node in made.nodes if node.origin == "policy")
    nothing = bytes(len(made.loss_mask))
    return replace(made, loss_mask=nothing, masked_tokens={reason: sampled})
