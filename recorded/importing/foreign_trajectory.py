"""Trajectories from sequences that another system sampled. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seamlessflow.recorded.importing.foreign_row import ForeignRow, ForeignRowRejected
from seamlessflow.schemas.records import Reward, Trajectory, TrajectoryNode, VersionSpan
from seamlessflow.schemas.tokens import FOREIGN

_UNKNOWN = -1
_POLICY = "policy"


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """A row's file, and its number, from 1."""

    path: str
    name: str
    digest: str
    row: int

    @property
    def session_id(self) -> str:
        """Id of the row's trajectory: the same whenever the same file is read."""
        return f"{FOREIGN}-{self.digest}-{self.row}"


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """Rules for rows that are brought in."""

    train: bool = False
    policy: str = FOREIGN
    """Policy for rows that name none."""
    version: int | None = None
    """Policy version for tokens if a file has none."""
    unscored: bool = False
    """True if trained rows need no log-probs or versions: `trainer.replay` pools take them."""


def foreign_trajectory(origin: RowOrigin, row: ForeignRow, rules: ForeignRules) -> Trajectory:
    """Return a row's trajectory.

    Its log-probs are not ours, so no sampled node is `behavior_exact`. Raises `ForeignRowRejected`
    for a row that is to be trained and lacks log-probs or versions.
    """
    versions_T = row.versions_T
    if rules.version is not None:
        versions_T = np.where(row.sampled_T & (versions_T < 0), rules.version, versions_T)
    if rules.train and not rules.unscored and row.sampled_T.any():
        _check_trainable(origin, row, bool((versions_T[row.sampled_T] < 0).any()))
    versions = versions_T[row.sampled_T & (versions_T >= 0)]
    logprobs_T = np.zeros(len(row.ids_T)) if row.logprobs_T is None else row.logprobs_T
    sampled = int(row.sampled_T.sum())
    session_id = origin.session_id
    status = row.named.get("status") or ("unrewarded" if row.reward is None else "complete")
    cause = row.named.get("cause") or ("environment" if status == "aborted" else _POLICY)
    return Trajectory(
        session_id=session_id,
        policy=row.named.get("policy") or rules.policy,
        task_id=row.named.get("task_id", ""),
        # A session that failed without the policy's fault does not count as its group's sample.
        group_id=(row.named.get("group_id") or session_id) if cause == _POLICY else session_id,
        metadata=_metadata(origin, row),
        tokens=row.ids_T.astype("<i4").tobytes(),
        logprobs=logprobs_T.astype("<f4").tobytes(),
        loss_mask=(row.sampled_T & rules.train).tobytes(),
        spans=tuple(_spans(row, versions_T)),
        nodes=tuple(_nodes(session_id, row, rules.train)),
        rewards=() if row.reward is None else (Reward(value=row.reward, source=FOREIGN),),
        status=status,
        reason="imported",
        cause=cause,
        creation_version=int(versions.min()) if versions.size else 0,
        version_min=int(versions.min()) if rules.train and versions.size else None,
        version_max=int(versions.max()) if rules.train and versions.size else None,
        turns=sum(1 for start, _ in _runs(row) if row.sampled_T[start]),
        masked_tokens={} if rules.train or not sampled else {FOREIGN: sampled},
        tokenizer_hash=row.named.get("tokenizer_hash", ""),
        partition=0,
        first_offset=_UNKNOWN,
        last_offset=_UNKNOWN,
        opened_at_ms=0,
        closed_at_ms=0,
        finalized_at_ms=0,
        fold_version=0,
    )


def _check_trainable(origin: RowOrigin, row: ForeignRow, unknown_version: bool) -> None:
    if row.logprobs_T is None:
        reason = "it has no log-probs to be trained with; --unscored takes it for trainer.replay"
        raise ForeignRowRejected(origin.path, origin.row, reason)
    if unknown_version and row.several_versions:
        first, last = row.several_versions
        reason = (
            f"its tokens are of the versions {first} to {last}, and it has no column versions that "
            "says which is of which: export it again, or name one version for all by --version"
        )
        raise ForeignRowRejected(origin.path, origin.row, reason)
    if unknown_version:
        reason = "it has no policy versions: name one by --version"
        raise ForeignRowRejected(origin.path, origin.row, reason)


def _metadata(origin: RowOrigin, row: ForeignRow) -> dict[str, str]:
    named = {
        f"{FOREIGN}_{name}": row.named[name]
        for name in ("session_id", "cluster")
        if name in row.named
    }
    logprobs = "none" if row.logprobs_T is None else FOREIGN
    facts = {"file": origin.name, "row": str(origin.row), "logprobs": logprobs, **named}
    return {**facts, "tokens": "rendered", **row.conversation} if row.conversation else facts


def _runs(row: ForeignRow) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run with the same temperature, all sampled or all not."""
    changes = (np.diff(row.sampled_T.astype(np.int8)) != 0) | (np.diff(row.temperatures_T) != 0)
    ends = [*(np.flatnonzero(changes) + 1).tolist(), len(row.ids_T)]
    yield from zip([0, *ends], ends, strict=False)


def _nodes(session_id: str, row: ForeignRow, train: bool) -> Iterator[TrajectoryNode]:
    before = 0
    for number, (start, end) in enumerate(_runs(row)):
        sampled = bool(row.sampled_T[start])
        is_root = start in row.begins
        yield TrajectoryNode(
            node_id=number,
            parent=-1 if is_root else number - 1,
            parent_end=0 if is_root else before,
            start=start,
            length=end - start,
            origin=FOREIGN if sampled else "prompt",
            turn_id=f"{session_id}-{number}",
            behavior_exact=not sampled,
            logprob_temperature=float(row.temperatures_T[start]) if sampled else 1.0,
            delivered=sampled,
            masked_reason=FOREIGN if sampled and not train else "",
            log_offset=_UNKNOWN,
        )
        before = end - start


def _spans(
    row: ForeignRow, versions_T: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> Iterator[VersionSpan]:
    for start, end in _runs(row):
        if row.sampled_T[start]:
            changes = np.flatnonzero(np.diff(versions_T[start:end])) + 1
            for place in (0, *changes.tolist()):
                version = int(versions_T[start + place])
                yield VersionSpan(start=start + place, version_min=version, version_max=version)
