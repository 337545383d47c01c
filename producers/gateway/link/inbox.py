"""Replies on their way from the reader to the call that waits for them. On the event loop only."""

import asyncio
from collections import deque

from infra.errors import SeamlessFlowError
from producers.gateway.link.pending import Reply
from schemas.records import ReplyDelta

Item = tuple[int, Reply]
"""The choice that a reply is about, and the reply."""


class Inbox:
    """Replies to one call, in the order of the log. One task reads it."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: deque[Item | SeamlessFlowError] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: Item | SeamlessFlowError) -> None:
        """Adds a reply, or an error that ends the waiting."""
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next(self) -> Item:
        """The next reply, as soon as there is one. Raises the error that was put."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._items.popleft()
        if isinstance(item, SeamlessFlowError):
            raise item
        return item

    async def some(self) -> list[Item]:
        """All replies that are there, as soon as there is one. Raises the error that comes next."""
        items = [await self.next()]
        while self._items and not isinstance(self._items[0], SeamlessFlowError):
            items.append(self._items.popleft())  # type: ignore[arg-type]
        return items


class Expected:
    """A turn or command that a call waits for."""

    __slots__ = ("answered", "choice", "for_turn", "inbox", "session_id", "waits_for")

    def __init__(
        self, inbox: Inbox, session_id: str, waits_for: str, choice: int, for_turn: bool
    ) -> None:
        self.inbox = inbox
        self.session_id = session_id
        self.waits_for = waits_for
        self.choice = choice
        self.for_turn = for_turn
        self.answered = False
        """Whether the last reply is in."""

    def take(self, reply: Reply) -> None:
        """Puts a reply into the inbox of the call."""
        if not isinstance(reply, ReplyDelta):
            self.answered = True
        self.inbox.put((self.choice, reply))
