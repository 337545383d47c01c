"""The calls that wait for replies, and the replies on their way to them.

A turn's command has the turn's id, so one table serves commands and turns; `link.py` routes every
reply with it. The manager may report that a retry joined another turn. The calls that waited for
the retry then wait for that turn. So several calls may wait for one turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.records import CommandAnswered, ReplyDelta, ReplyFinished

ReplyRecord = CommandAnswered | ReplyDelta | ReplyFinished
OK = 200
ChoiceReply = tuple[int, ReplyRecord]
"""A choice's number, and a reply about it."""


class ReplyInbox:
    """The replies to one call, in log order. One event-loop task reads them."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: deque[ChoiceReply | SeamlessFlowError] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: ChoiceReply | SeamlessFlowError) -> None:
        """Add a reply, or an error to raise in the reading task."""
        self._items.append(item)
        # The second of two replies finds the future done but the task not resumed yet.
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next_reply(self) -> ChoiceReply:
        """Wait for the next reply and return it. Raises the error if one was put instead."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._items.popleft()
        if isinstance(item, SeamlessFlowError):
            raise item
        return item

    async def ready_replies(self) -> list[ChoiceReply]:
        """Wait for a reply and return all that are there, up to the first error.

        Raises the error if it comes first.
        """
        items = [await self.next_reply()]
        while self._items and not isinstance(self._items[0], SeamlessFlowError):
            items.append(self._items.popleft())  # type: ignore[arg-type]
        return items


class ExpectedReply:
    """A turn or command whose reply a call waits for."""

    __slots__ = (
        *("answered", "choice", "completed", "delivered", "for_turn"),
        *("inbox", "on_answer", "session_id", "waits_for"),
    )

    def __init__(
        self, inbox: ReplyInbox, session_id: str, waits_for: str, choice: int, for_turn: bool
    ) -> None:
        self.inbox = inbox
        self.session_id = session_id
        self.waits_for = waits_for
        self.choice = choice
        self.for_turn = for_turn
        self.answered = False
        """True once the last reply has arrived."""
        self.completed = False
        """True if that reply is a turn's whole answer."""
        self.delivered = False
        """True once another call has answered its client with the same turn."""
        self.on_answer: Callable[[], object] | None = None
        """Called when the last reply arrives, by a call whose client is gone."""

    def receive(self, reply: ReplyRecord) -> None:
        """Put a reply into the call's inbox."""
        if not isinstance(reply, ReplyDelta):
            self.answered = True
            self.completed = isinstance(reply, ReplyFinished) and reply.status == OK
            on_answer = self.on_answer
            self.on_answer = None
            if on_answer is not None:
                on_answer()
        self.inbox.put((self.choice, reply))


class Waiting(Protocol):
    """A call that waits for the answer to a command, or (`for_turn`) to a turn."""

    waits_for: str
    for_turn: bool


W = TypeVar("W", bound=Waiting)


class PendingReplies(Generic[W]):
    """A table of waiting calls, by command or turn id. Pure."""

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
        """Return the calls that wait for the same command or turn as a call that was removed."""
        return self._by_id.get(waiting.waits_for, ())

    def route(self, reply: ReplyRecord) -> Sequence[W]:
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
