"""Who waits for which reply. Pure; `link.py` asks it about every reply to this gateway.

A turn's command has the turn's id, so one table serves commands and turns. When the manager says
that a retry joined another turn, whoever waited for the retry waits for that turn from then on; so
several calls may wait for one turn.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from schemas.records import CommandAnswered, ReplyDelta, ReplyFinished

Reply = CommandAnswered | ReplyDelta | ReplyFinished
OK = 200


class Waiting(Protocol):
    """Somebody who waits for a command's answer, or (`for_turn`) for a turn's."""

    waits_for: str
    for_turn: bool


W = TypeVar("W", bound=Waiting)


class Pending(Generic[W]):
    """All that is waited for, by the id of the command or turn."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[W]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[W]:
        return (waiting for there in self._by_id.values() for waiting in there)

    def add(self, waiting: W) -> None:
        """Somebody begins to wait."""
        self._by_id.setdefault(waiting.waits_for, []).append(waiting)

    def remove(self, waiting: W) -> bool:
        """Somebody waits no longer; whether nobody is left who waits for this."""
        there = self._by_id.get(waiting.waits_for, [])
        if waiting in there:
            there.remove(waiting)
        if not there:
            self._by_id.pop(waiting.waits_for, None)
        return not there

    def route(self, reply: Reply) -> Sequence[W]:
        """Those whom the reply concerns. Takes in that a retry joined another turn."""
        if not isinstance(reply, CommandAnswered):
            return self._by_id.get(reply.turn_id, ())
        there = self._by_id.get(reply.command_id, ())
        if reply.status != OK or not there or not there[0].for_turn:
            return there
        if reply.turn_id is not None and reply.turn_id != reply.command_id:
            self._move(reply.command_id, reply.turn_id)
        return ()

    def _move(self, retry: str, turn_id: str) -> None:
        moved = self._by_id.pop(retry)
        for waiting in moved:
            waiting.waits_for = turn_id
        self._by_id.setdefault(turn_id, []).extend(moved)
