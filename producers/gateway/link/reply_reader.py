"""The thread that reads this gateway's partition of `replies`.

Its start is the partition's end, fixed before anything is asked, so no reply is missed. A batch is
handed to the event loop in one call. An error ends the thread and with it the process.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.settings import KafkaSettings
from producers.gateway.link.pending import Reply
from schemas.records import CommandAnswered, ReplyDelta, ReplyFinished
from schemas.topics import REPLIES

_POLL_S = 0.2
_JOIN_S = 5.0
_REPLIES = (ReplyFinished, ReplyDelta, CommandAnswered)


class Replies:
    """Hands replies addressed to `gateway` to `deliver` on `loop`, in the order of the log."""

    def __init__(
        self,
        settings: KafkaSettings,
        gateway: str,
        partition: int,
        dead_letters: Producer,
        deliver: Callable[[Sequence[Reply]], None],
    ) -> None:
        self._gateway = gateway
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._partition = partition
        self._reader = Reader(settings, f"gateway-{gateway}", dead_letters=dead_letters)
        self._thread = threading.Thread(target=self._serve, name="replies", daemon=True)

    async def start(self, timeout_s: float) -> None:
        """Fixes where to begin and begins. Raises `KafkaUnavailable` and `TopicMissing`."""
        ends = await asyncio.to_thread(
            self._reader.ends, [(REPLIES.name, self._partition)], timeout_s
        )
        self._reader.assign(ends)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join(_JOIN_S)

    def _serve(self) -> None:
        while not self._closed.is_set():
            replies = [
                item.record
                for item in self._reader.poll(_POLL_S)
                if isinstance(item.record, _REPLIES) and item.record.gateway == self._gateway
            ]
            if replies:
                self._loop.call_soon_threadsafe(self._deliver, replies)
        self._reader.close()
