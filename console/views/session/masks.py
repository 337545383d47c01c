"""Reasons that a session's own events give: for its prompts, and for sampled tokens under a mask.

Tokens that the trajectory lets be trained are left open here. Pure; called by `reasons.py`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from seamlessflow.console.views.session.columns import TokenColumns
from seamlessflow.console.views.session.folded import FoldedSession
from seamlessflow.console.views.session.reason import (
    ReasonRow,
    ReasonTable,
    TokenReason,
    reason_row,
)
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Int32s
from seamlessflow.schemas.records import Record, Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import FOREIGN, FORKED
from seamlessflow.trainer.data.chains import SAMPLED

OPEN = -1
"""Reason code for a token that may be trained."""
_INEXACT_VERSION = "inexact_version"
_RUNNING = "running"
_TOO_LARGE = "too_large"
_PROVED_BY: Mapping[str, tuple[type[Record], ...]] = {
    "frozen": (r.TurnStarted,),
    "failed": (r.TurnFailed,),
    "cancelled": (r.TurnCancelled,),
    "prompt_mismatch": (r.TurnCompleted,),
    "undelivered": (r.TurnUndelivered, r.TurnCancelled),
}
"""For each mask reason, the types of a turn's events that show it."""
_OF_SESSION: Mapping[str, type[Record]] = {
    "cut": r.SessionClosed,
    "eval": r.SessionOpened,
    "explore": r.SessionOpened,
    "judge": r.SessionOpened,
}
"""For each mask reason, the type of the session's event that shows it."""


class _Samples:
    """Answers by the prompt that they were sampled for, and the turns that continue them."""

    def __init__(self, nodes: Sequence[TrajectoryNode]) -> None:
        self._nodes = nodes

    @cached_property
    def _by_position(self) -> dict[tuple[int, int], list[TrajectoryNode]]:
        samples: dict[tuple[int, int], list[TrajectoryNode]] = {}
        for node in self._nodes:
            if node.origin in SAMPLED:
                samples.setdefault(self._position(node), []).append(node)
        return samples

    @cached_property
    def _onward(self) -> dict[int, str]:
        """For each node, the first turn that goes on from it."""
        onward: dict[int, str] = {}
        for node in self._nodes:
            if node.parent >= 0 and node.parent_end > 0:
                onward.setdefault(node.parent, node.turn_id)
        return onward

    def taken_instead(self, node: TrajectoryNode) -> str:
        """Return the turn that continued another sample of the prompt, else the last sample's."""
        others = [other for other in self._by_position[self._position(node)] if other is not node]
        turns = [self._onward[other.node_id] for other in others if other.node_id in self._onward]
        return next(iter(turns), others[-1].turn_id if others else node.turn_id)

    def _position(self, node: TrajectoryNode) -> tuple[int, int]:
        """Return the node and length at which a prompt ends; the same for equal prompts."""
        end = node.parent_end
        place = node.parent
        while place >= 0 and end == 0:  # a turn that samples a prompt again has an empty node
            end = self._nodes[place].parent_end
            place = self._nodes[place].parent
        return place, end


def mask_reasons(
    columns: TokenColumns,
    folded: FoldedSession | None,
    logged: Received | None,
    table: ReasonTable,
) -> Int32s:
    """Return each token's reason, `OPEN` for those that may be trained.

    `logged`: the session's record on `trajectories`. It decides which tokens may be trained.
    """
    reasons_T = np.full(len(columns), OPEN, np.int32)
    masked = _whole_mask(folded, logged)
    samples = _Samples(columns.nodes)
    for node in columns.nodes:
        part = slice(node.start, node.start + node.length)
        if node.origin not in SAMPLED:
            reasons_T[part] = table.number(_given(node, folded, logged))
            continue
        closed_T = ~columns.mask_T[part]
        if masked is not None:
            reasons_T[part] = table.number(masked)
        elif closed_T.any():
            row = _masked(node, columns, samples, folded, logged)
            reasons_T[part] = np.where(closed_T, table.number(row), OPEN)
    return reasons_T


def _whole_mask(folded: FoldedSession | None, logged: Received | None) -> ReasonRow | None:
    """Return the one reason for all sampled tokens if their trajectory has no tokens, else None."""
    record = logged.record if logged else None
    if logged is None and folded is not None and folded.session.failed:
        words = "the manager gave its session up"
        closed = folded.event(r.SessionClosed)
        return reason_row(TokenReason.SESSION_FAILED, words, closed, "infrastructure")
    if not isinstance(record, Trajectory) or record.nodes:
        return None
    if _TOO_LARGE in record.masked_tokens:
        words = f"its trajectory does not fit into a record ({record.reason})"
        return reason_row(TokenReason.MASKED, words, logged, _TOO_LARGE)
    words = f"its trajectory has no tokens: {record.reason}"
    return reason_row(TokenReason.SESSION_FAILED, words, logged, record.cause)


def _given(
    node: TrajectoryNode, folded: FoldedSession | None, logged: Received | None
) -> ReasonRow:
    """Return the reason for tokens that were not sampled in the session."""
    kind = TokenReason.PROMPT
    proof: type[Record] = r.TurnStarted
    if node.masked_reason == FORKED or node.match_rule == FORKED:
        kind = TokenReason.FORKED
        proof = r.SessionOpened
    elif node.intervened:
        kind = TokenReason.INTERVENTION
    elif node.origin == "tool":
        kind = TokenReason.TOOL_RESULT
    turn_id = node.turn_id if proof is r.TurnStarted else None
    return reason_row(kind, item=_event(folded, logged, proof, turn_id=turn_id))


def _masked(
    node: TrajectoryNode,
    columns: TokenColumns,
    samples: _Samples,
    folded: FoldedSession | None,
    logged: Received | None,
) -> ReasonRow:
    """Return the reason for an answer's masked tokens."""
    rule = node.masked_reason or _INEXACT_VERSION
    if rule == _RUNNING:
        started = _event(folded, logged, r.TurnDispatched, r.TurnStarted, turn_id=node.turn_id)
        return reason_row(TokenReason.UNDER_WAY, "its turn is being sampled", started)
    if node.origin == FOREIGN:
        return reason_row(TokenReason.FOREIGN, item=logged)
    if rule in _OF_SESSION:
        proof = _event(folded, logged, _OF_SESSION[rule])
    elif rule == "abandoned":
        taken = samples.taken_instead(node)
        proof = _event(folded, logged, r.TurnStarted, turn_id=taken)
    elif rule == _INEXACT_VERSION:
        proof = _inexact_output(node, columns) or logged
    else:
        kinds = _PROVED_BY.get(rule, (r.TurnStarted,))
        proof = _event(folded, logged, *kinds, turn_id=node.turn_id)
    words = f"masked by the rule {rule}"
    purpose = columns.trajectory.purpose
    if purpose in _OF_SESSION and rule not in _OF_SESSION:
        words += f", and no session of the purpose {purpose} is trained"
    return reason_row(TokenReason.MASKED, words, proof, rule)


def _event(
    folded: FoldedSession | None,
    logged: Received | None,
    *kinds: type[Record],
    turn_id: str | None = None,
) -> Received | None:
    """Return the newest of these events, or the trajectory if the log has none of them."""
    event = None if folded is None else folded.event(*kinds, turn_id=turn_id)
    return event or logged


def _inexact_output(node: TrajectoryNode, columns: TokenColumns) -> Received | None:
    """Return the event that brought the first token whose version is not known exactly."""
    part = slice(node.start, node.start + node.length)
    (places,) = np.nonzero(~columns.mask_T[part])
    source = int(columns.sources_T[node.start + int(places[0])])
    return columns.sources[source] if source >= 0 else None
