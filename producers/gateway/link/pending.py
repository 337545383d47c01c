"""The calls that wait for replies, by turn or command. Pure; `link.py` routes every reply with it.

A turn's command has the turn's id, so one table serves commands and turns. When the manager reports
that a retry joined another turn, the calls that waited for the retry wait for that turn from then
on. So several calls may wait for one turn.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from seamlessflow.schemas.records import CommandAnswered, ReplyDelta, ReplyFinished

Reply = CommandAnswered | ReplyDelta | ReplyFinished
OK = 200


class Waiting(Protocol):
    """A call that waits for the answer to a command, or (`for_turn`) to a turn."""

    waits_for: str
    for_turn: bool


W = TypeVar("W", bound=Waiting)


class PendingReplies(Generic[W]):
    """A table of waiting calls, by the id of the command or turn."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[W]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[W]:
        return (waiting for calls in self._by_id.values() for waiting in calls)

    def add(self, waiting: W) -> None:
        """Add a call that waits for `waits_for`."""
        self._by_id.setdefault(waiting.waits_for, []).append(waiting)

    def remove(self, waiting: W) -> bool:
        """Remove a call. Return whether no other call waits for the same command or turn."""
        calls = self._by_id.get(waiting.waits_for, [])
        if waiting in calls:
            calls.remove(waiting)
        if not calls:
            self._by_id.pop(waiting.waits_for, None)
        return not calls

    def others(self, waiting: W) -> Sequence[W]:
        """Return the calls that wait for the same command or turn as one that was removed."""
        return self._by_id.get(waiting.waits_for, ())

    def route(self, reply: Reply) -> Sequence[W]:
        """Return the calls that get this reply. Moves a retry to the turn that it joined."""
        if not isinstance(reply, CommandAnswered):
            return self._by_id.get(reply.turn_id, ())
        calls = self._by_id.get(reply.command_id, ())
        # For a turn only a refusal is an answer; an acceptance names the turn that a retry joined.
        if reply.status != OK or not calls or not calls[0].for_turn:
            return calls
        if reply.turn_id is not None and reply.turn_id != reply.command_id:
            self._move(reply.command_id, reply.turn_id)
        return ()

    def _move(self, retry: str, turn_id: str) -> None:
        moved = self._by_id.pop(retry)
        for waiting in moved:
            waiting.waits_for = turn_id
        self._by_id.setdefault(turn_id, []).extend(moved)
