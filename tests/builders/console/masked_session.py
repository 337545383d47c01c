"""A session `s` with a turn for each rule of masks, two rewards, and the turn that is trained."""

from collections.abc import Sequence

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record, Reward
from tests.builders.console.memory_log import raw_item
from tests.builders.records import sessions
from tests.builders.records.content import ids

MASKED = {"abandoned": 1, "inexact_top_p": 2, "undelivered": 3}
"""Sampled tokens that the recorded rules mask, by reason."""
TRAINED = 1


def turn(turn_id: str, prompt: bytes, answer: bytes, **started: object) -> list[Record]:
    """Return a turn whose prompt is given whole, so that it is recorded as a root of its own."""
    return [
        sessions.started(turn_id, prompt, **started),
        sessions.dispatched(turn_id=turn_id),
        sessions.completed(answer, turn_id, prompt),
    ]


def masked_session(*end: Record) -> Sequence[Record]:
    """Return its events behind the partition's claim; by default it ends as `complete`."""
    rewards = [
        sessions.rewarded(Reward(name=name, value=value), command_id=name, final=False)
        for name, value in (("correct", 1.0), ("format", 0.5))
    ]
    return [
        sessions.claimed(),
        sessions.opened(group_id="g"),
        *turn("a", ids(1), ids(2)),
        *turn("b", ids(1), ids(3), parent_node=0, parent_end=1, suffix_ids=b""),
        *turn("c", ids(1, 3, 5), ids(6, 7), behavior_exact=False, inexact_reason="top_p"),
        *turn("d", ids(8), ids(9, 10, 11), train_undelivered=False),
        sessions.undelivered(turn_id="d"),
        *rewards,
        *(end or (sessions.closed(), sessions.finalized())),
    ]


def masked_items(*end: Record) -> list[Received]:
    """Return the same events as they stand on partition 0 of `sessions`, with their keys."""
    return [
        raw_item(
            *("sessions", 0, offset, 1_000 * offset),
            value=encode(event),
            key=getattr(event, "session_id", None),
        )
        for offset, event in enumerate(masked_session(*end))
    ]
