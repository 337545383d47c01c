"""A session's tokens as columns: an array for each fact, with an entry for each token in its tree.

They stand in the order of a `Trajectory`. If the log has no trajectory, or one without tokens, it
is assembled here from the events. `_T` counts all tokens in the tree. Pure.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass

import numpy as np

from seamlessflow.console.views.session.folded import FoldedSession
from seamlessflow.consumers.trajectories.sessions.assemble import assembled, standing
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.arrays import Bools, Float32s, Int32s
from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import POLICY, of_exact_version
from seamlessflow.trainer.data.chains import SAMPLED

ANY_SIZE = 2**62
"""Byte limit for a session that is only looked at."""
NOT_SAMPLED = -2
"""Version for a token that no policy in this run sampled."""
INEXACT = -1
"""Version for a token if it is not known which of several versions sampled it."""
NO_WORKER = -1


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Facts about all tokens in a session's tree."""

    trajectory: Trajectory
    """Record that the columns come from; made here if the log has none."""
    nodes: tuple[TrajectoryNode, ...]
    ids_T: Int32s
    logprobs_T: Float32s
    """Log-prob at the engine; NaN if none was reported."""
    mask_T: Bools
    """True for a token that its trajectory's mask lets be trained."""
    versions_T: Int32s
    """Policy version that sampled the token, or `INEXACT`, or `NOT_SAMPLED`."""
    nodes_T: Int32s
    workers_T: Int32s
    """Number of the worker in `workers`, or `NO_WORKER`."""
    workers: tuple[str, ...]
    sources_T: Int32s
    """Number of the event in `sources` that brought the token; -1 without one."""
    sources: tuple[Received, ...]

    def __len__(self) -> int:
        return len(self.ids_T)

    @property
    def sampled_T(self) -> Bools:
        """True for a token that was sampled in this session."""
        sampled_T: Bools = self.versions_T != NOT_SAMPLED
        return sampled_T


def token_columns(folded: FoldedSession | None, logged: Trajectory | None) -> TokenColumns | None:
    """Return a session's columns from its events and its record on `trajectories`, or None.

    Either may be missing: a session that goes on has no record, and a recording has no events.
    """
    trajectory = _whole(folded, logged)
    if trajectory is None:
        return None
    nodes = trajectory.nodes
    size = len(trajectory.loss_mask)
    numbers_T = np.zeros(size, np.int32)
    logprobs_T = np.frombuffer(trajectory.logprobs, "<f4").copy()
    for node in nodes:
        part = slice(node.start, node.start + node.length)
        numbers_T[part] = node.node_id
        if node.origin not in SAMPLED:
            logprobs_T[part] = np.nan
    workers: dict[str, int] = {}
    workers_T, sources_T = np.full((2, size), NO_WORKER, np.int32)
    sources = () if folded is None else _sources(folded, nodes, workers, workers_T, sources_T)
    return TokenColumns(
        trajectory=trajectory,
        nodes=nodes,
        ids_T=np.frombuffer(trajectory.tokens, "<i4"),
        logprobs_T=logprobs_T,
        mask_T=np.frombuffer(trajectory.loss_mask, np.uint8) != 0,
        versions_T=_versions(trajectory),
        nodes_T=numbers_T,
        workers_T=workers_T,
        workers=tuple(workers),
        sources_T=sources_T,
        sources=tuple(sources),
    )


def _whole(folded: FoldedSession | None, logged: Trajectory | None) -> Trajectory | None:
    """Return the session with all its tokens: as the log has it, else as its events leave it."""
    if folded is None or (logged is not None and logged.nodes):
        return logged
    session = folded.session
    if session.finalized_at_ms is None:
        return standing(session, folded.partition, session.opened.epoch, 0, ANY_SIZE)
    # A session that was given up has a trajectory without tokens; its events still have them.
    view = copy(session)
    view.failed = False
    (made, _) = assembled(view, folded.partition, ANY_SIZE)
    return made


def _versions(trajectory: Trajectory) -> Int32s:
    """Return each token's version. A span ends where the next begins, or where its node ends."""
    versions_T = np.full(len(trajectory.loss_mask), NOT_SAMPLED, np.int32)
    spans = sorted(trajectory.spans, key=lambda span: span.start)
    ends = [*(span.start for span in spans[1:]), len(versions_T)]
    for span, end in zip(spans, ends, strict=False):
        exact = of_exact_version(span)
        versions_T[span.start : end] = span.version_min if exact else INEXACT
    for node in trajectory.nodes:
        if node.origin not in SAMPLED:
            versions_T[node.start : node.start + node.length] = NOT_SAMPLED
    return versions_T


def _sources(
    folded: FoldedSession,
    nodes: Iterable[TrajectoryNode],
    workers: dict[str, int],
    workers_T: Int32s,
    sources_T: Int32s,
) -> list[Received]:
    """Fill in each sampled token's worker and event; return the events."""
    starts = {node.turn_id: node for node in nodes if node.origin == POLICY}
    sources: list[Received] = []
    for stretch in folded.stretches:
        node = starts.get(stretch.turn_id)
        if node is None:
            continue
        worker = workers.setdefault(stretch.worker, len(workers))
        workers_T[node.start + stretch.begin : node.start + stretch.end] = worker
        ends = (*stretch.begins[1:], stretch.end)
        for item, begin, end in zip(stretch.outputs, stretch.begins, ends, strict=True):
            sources_T[node.start + begin : node.start + end] = len(sources)
            sources.append(item)
    return sources
