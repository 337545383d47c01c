"""Record of a node whose tokens a fork copied from another session. Pure."""

from seamlessflow.consumers.trajectories.sessions.session import Turn
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.schemas.records import TrajectoryNode
from seamlessflow.schemas.tokens import FORKED


def copied_node(node: Node, start: int, turn: Turn | None) -> TrajectoryNode:
    """Return a copied node; without a turn, that of the prompt behind which the session goes on."""
    return TrajectoryNode(
        node_id=node.node_id,
        parent=node.parent,
        parent_end=node.parent_end,
        start=start,
        length=node.length,
        origin=node.origin,
        turn_id=node.turn_id,
        policy=turn.started.policy if turn and node.sampled else "",
        module=turn.started.module if turn else "",
        finish_reason=turn.finish_reason if turn and node.sampled else "",
        match_rule=FORKED,
        masked_reason=FORKED if node.sampled else "",
        log_offset=node.log_offset,
    )
