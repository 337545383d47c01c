"""Hashes that are kept of finalized sessions."""

import numpy as np

from seamlessflow.consumers.trajectories.sessions.ended import EndedSessions
from seamlessflow.schemas.records import EndedSession

_STEP = 0x9E3779B97F4A7C15


def spread(number: int) -> int:
    """Return a number that looks like a hash."""
    return (number + 1) * _STEP % 2**64


def test_nothing_is_forgotten_among_a_hundred_thousand_later_sessions() -> None:
    ended = EndedSessions()
    for number in range(100_001):
        hashes = np.array((spread(2 * number), spread(2 * number + 1)), "<u8")
        ended.add(EndedSession(session_id="s", calls=hashes.tobytes(), named_calls=b""))

    assert all(spread(number) in ended for number in range(0, 200_002, 997))
    assert spread(0) in ended and spread(200_001) in ended
    assert not any(spread(number) in ended for number in range(200_002, 200_500))
    assert 2**64 - 1 not in ended
