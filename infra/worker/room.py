"""Room of a worker for turns: how many it is given at once. Pure.

A turn that waits in an engine cannot go to a worker that comes back from training; one that waits
before it is given to any can. So a worker gets as many as it samples at once, and a few more, which
hide the way of the next one. Used by the trajectory manager and the simulator alike.
"""

_AHEAD = 8
"""Turns that are sampled at once for each one that may wait behind them."""


def has_room(turns: int, capacity: int) -> bool:
    """Return True if a worker with so many turns may get one that has no prefix on it.

    `capacity`: turns that it samples at once; 0 if that is unknown, then there always is room.
    """
    return capacity <= 0 or turns < capacity + max(1, capacity // _AHEAD)
