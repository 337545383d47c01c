"""Tokens that another system sampled, which are trained only if they are asked for. Pure."""

from dataclasses import replace

from seamlessflow.schemas.records import Trajectory

FOREIGN = "foreign"
"""Origin of their nodes, and the reason why they are masked."""


def is_foreign(trajectory: Trajectory) -> bool:
    """Return True if another system sampled some of its tokens."""
    return any(node.origin == FOREIGN for node in trajectory.nodes)


def without_foreign(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory with its foreign tokens masked."""
    if not is_foreign(trajectory):
        return trajectory
    mask, count = bytearray(trajectory.loss_mask), 0
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
