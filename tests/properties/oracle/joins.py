"""The turn that each retry must get, computed from the log alone."""

from collections.abc import Iterable, Mapping, Sequence

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.trajectories.oracle import ExpectedSession, ExpectedTurn

Requests = Mapping[str, r.RequestTurn]
_WINDOW_MS = 60_000


def check_join(
    event: r.TurnJoined,
    session: ExpectedSession,
    log: Sequence[Record],
    requests: Requests,
    silence_ended_ms: int,
) -> None:
    """Check that a join is of a turn that its retry can mean, by the log that was read for it.

    `silence_ended_ms`: when its manager had records again after the last outage, which is not on
    the log.
    """
    joined = session.turn(event.turn_id)
    retry, first = requests[event.command_id], requests[event.turn_id]
    assert joined is not None
    assert _question(retry) == _question(first), "joined another question"
    if retry.idempotency_key is not None:
        assert retry.idempotency_key == first.idempotency_key, "joined another key"
        return
    tried = _tried(session, retry, requests)
    assert joined in tried, "joined what no earlier try began"
    later = {attempt.end for attempt in tried[tried.index(joined) :]}
    assert later <= {"", "completed"}, "joined past a try that failed"
    if joined.end == "completed":
        _check_missed(joined, retry, log, silence_ended_ms)


def check_start(turn: ExpectedTurn, session: ExpectedSession, requests: Requests) -> None:
    """Check that no turn was started by a request that had one to join."""
    request = requests[turn.started.turn_id]
    if request.idempotency_key is None:
        latest = [
            attempt.end
            for attempt in _tried(session, request, requests)
            if attempt.end != "completed"
        ]
        assert "" not in latest[-1:], "a retry began a turn of its own"
        return
    for earlier in session.turns:
        first = requests[earlier.started.turn_id]
        named = request.idempotency_key, request.choice
        again = named == (first.idempotency_key, first.choice)
        assert not again or earlier.end not in ("", "completed"), "a key has two turns"


def _tried(
    session: ExpectedSession, retry: r.RequestTurn, requests: Requests
) -> list[ExpectedTurn]:
    """Return the turns that earlier tries of the same call may have started, in log order."""
    firsts = [(turn, requests[turn.started.turn_id]) for turn in session.turns]
    return [
        turn
        for turn, first in firsts
        if _question(first) == _question(retry) and first.retry_count < retry.retry_count
    ]


def _question(request: r.RequestTurn) -> tuple[object, ...]:
    return request.session_id, request.body_hash, request.module, request.choice


def _check_missed(
    joined: ExpectedTurn, retry: r.RequestTurn, log: Sequence[Record], silence_ended_ms: int
) -> None:
    """Check that the client of an answered turn may lack the answer."""
    turn_id = joined.started.turn_id
    further = [event for event in log if isinstance(event, r.TurnStarted)]
    successors = {event.parent_turn for event in further}
    successors |= {event.previous_turn for event in further}
    assert turn_id not in successors, "joined what the agent has gone on from"
    told_ms = max(joined.outputs[-1].at_ms, _claimed_ms(log), silence_ended_ms)
    assert retry.issued_at_ms - told_ms <= _WINDOW_MS, "joined an answer of long ago"


def _claimed_ms(log: Iterable[Record]) -> int:
    claims = [event for event in log if isinstance(event, r.PartitionClaimed)]
    newest = max(claim.epoch for claim in claims)
    return next(claim.at_ms for claim in claims if claim.epoch == newest)
