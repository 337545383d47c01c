"""Hops of turns: the time from a request to its `TurnStarted`. A pure fold over both topics.

Gateway, Kafka and manager take it, no device: in a rehearsal it is the part of a turn's latency
that software takes. A turn's way back is as long, but no record marks its end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from seamlessflow.schemas.records import Record, RequestTurn, TurnStarted


@dataclass(frozen=True, slots=True)
class Hops:
    """The hops of all turns."""

    lasted_ms: Sequence[int]

    @property
    def mean_ms(self) -> float:
        """Mean; 0 without a turn."""
        return fmean(self.lasted_ms) if self.lasted_ms else 0.0

    @property
    def p95_ms(self) -> int:
        """Hop that one in twenty exceeds; 0 without a turn."""
        ordered = sorted(self.lasted_ms)
        return ordered[int(0.95 * len(ordered))] if ordered else 0


def hops(commands: Iterable[Record], events: Iterable[Record]) -> Hops:
    """Return the hops of turns that both topics have; a repeated command counts as first sent."""
    issued: dict[str, int] = {}
    for command in commands:
        if isinstance(command, RequestTurn):
            issued.setdefault(command.command_id, command.issued_at_ms)
    started = (event for event in events if isinstance(event, TurnStarted))
    return Hops(
        [event.at_ms - issued[event.command_id] for event in started if event.command_id in issued]
    )
