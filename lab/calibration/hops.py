"""Hops of turns: the time from a request to its `TurnStarted`. Pure.

Gateway, Kafka and manager take it, no device. A command that was sent again counts from its first
sending. Called for the rates and the workload of a recorded run, and for the verdict on a
rehearsal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from seamlessflow.schemas.records import Record, RequestTurn, TurnStarted


@dataclass(frozen=True, slots=True)
class Hops:
    """The hops of several turns."""

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


def issued_ms(commands: Iterable[Record]) -> Mapping[str, int]:
    """Return when each `RequestTurn` was first sent, by the id of its command."""
    issued: dict[str, int] = {}
    for command in commands:
        if isinstance(command, RequestTurn):
            issued.setdefault(command.command_id, command.issued_at_ms)
    return issued


def hop_ms(started: TurnStarted, issued: Mapping[str, int]) -> int | None:
    """Return the hop of a turn, or None if its request is not kept any more."""
    if started.command_id not in issued:
        return None
    # The clocks of gateway and manager may differ.
    return max(0, started.at_ms - issued[started.command_id])


def hops(commands: Iterable[Record], events: Iterable[Record]) -> Hops:
    """Return the hops of the turns that both topics have."""
    issued = issued_ms(commands)
    lasted = (hop_ms(event, issued) for event in events if isinstance(event, TurnStarted))
    return Hops([ms for ms in lasted if ms is not None])
