"""Replies on their way from the reader to the call that waits for them. On the event loop only."""

import asyncio
from collections import deque
from collections.abc import Callable

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.gateway.link.pending import OK, Reply
from seamlessflow.schemas.records import ReplyDelta, ReplyFinished

ChoiceReply = tuple[int, Reply]
"""The number of a choice, and a reply about it."""


class ReplyInbox:
    """The replies to one call, in the order of the log. One task reads them."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: deque[ChoiceReply | SeamlessFlowError] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: ChoiceReply | SeamlessFlowError) -> None:
        """Add a reply, or an error that the reading task gets raised."""
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

    def receive(self, reply: Reply) -> None:
        """Put a reply into the inbox of the call."""
        if not isinstance(reply, ReplyDelta):
            self.answered = True
            self.completed = isinstance(reply, ReplyFinished) and reply.status == OK
            on_answer, self.on_answer = self.on_answer, None
            if on_answer is not None:
                on_answer()
        self.inbox.put((self.choice, reply))
