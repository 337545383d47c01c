"""Turns of a recorded run: where, when and how long each was sampled. A pure fold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn that one worker sampled from its beginning to its end; times in milliseconds."""

    session: str
    worker: str
    requested_ms: int
    """Its client's request; the time of `started_ms` if that is not kept any more."""
    started_ms: int
    ended_ms: int
    prompt: int
    added: int
    """Tokens of its prompt that the session did not have before."""
    sampled: int

    @property
    def hop_ms(self) -> int:
        """The time from its request to its `TurnStarted`."""
        return self.started_ms - self.requested_ms


def recorded_turns(
    sessions: Iterable[Record], requests: Iterable[Record] = ()
) -> Sequence[RecordedTurn]:
    """Return the turns in the order of their ends; those that moved or failed are left out."""
    asked = {
        request.turn_id: request.issued_at_ms
        for request in requests
        if isinstance(request, r.RequestTurn)
    }
    started: dict[str, r.TurnStarted] = {}
    turns: list[RecordedTurn] = []
    for record in sessions:
        match record:
            case r.TurnStarted():
                started[record.turn_id] = record
            case r.TurnCompleted(dispatch=1):
                if (begun := started.pop(record.turn_id, None)) is not None:
                    turns.append(_turn(begun, record, asked.get(record.turn_id, begun.at_ms)))
    return sorted(turns, key=lambda turn: turn.ended_ms)


def mean_hop_s(turns: Iterable[RecordedTurn]) -> float:
    """Return the mean time from a request to its `TurnStarted`; 0 if no request is kept."""
    hops = [max(0, turn.hop_ms) for turn in turns]
    return fmean(hops) / 1000 if hops else 0.0


def _turn(begun: r.TurnStarted, ended: r.TurnCompleted, requested_ms: int) -> RecordedTurn:
    return RecordedTurn(
        session=begun.session_id,
        worker=ended.worker,
        requested_ms=requested_ms,
        started_ms=begun.at_ms,
        ended_ms=ended.at_ms,
        prompt=begun.prompt_length,
        added=len(begun.suffix_ids) // TOKEN_BYTES,
        sampled=ended.token_offset + len(ended.token_ids) // TOKEN_BYTES,
    )
