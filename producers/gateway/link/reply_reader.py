"""The thread that reads this gateway's partition of `replies`.

It begins at the partition's end, looked up before the gateway sends its first command, so no reply
is missed. An error ends the thread and with it the process.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.dead_letters import DeadLetters
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.gateway.link.pending import Reply
from seamlessflow.schemas.records import CommandAnswered, ReplyDelta, ReplyFinished
from seamlessflow.schemas.topics import REPLIES

_POLL_S = 0.2
_JOIN_S = 5.0
_REPLIES = (ReplyFinished, ReplyDelta, CommandAnswered)


class ReplyReader:
    """A thread that gives the replies to `gateway` to `deliver`, in the order of the log.

    `deliver` runs on the event loop that made the reader.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        gateway: str,
        partition: int,
        producer: Producer,
        deliver: Callable[[Sequence[Reply]], None],
        tracing: Telemetry,
        stopping: Stopping,
    ) -> None:
        self._gateway = gateway
        self._tracing = tracing
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._closed = threading.Event()
        self._partition = partition
        letters, client_id = DeadLetters(settings, producer, stopping), f"gateway-{gateway}"
        self.reader = Reader(settings, client_id, bury=letters.bury, stopping=stopping)
        self._thread = threading.Thread(target=self._serve, name="replies", daemon=True)

    async def start(self) -> None:
        """Begin at the partition's end. Raises `KafkaUnavailable` and `TopicMissing`."""
        ends = await asyncio.to_thread(self.reader.ends, [(REPLIES.name, self._partition)])
        self.reader.assign(ends)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._thread.join(_JOIN_S)

    def _serve(self) -> None:
        while not self._closed.is_set():
            replies = []
            for item in self.reader.poll(_POLL_S):
                if isinstance(item.record, _REPLIES) and item.record.gateway == self._gateway:
                    self._tracing.process(item).end()
                    replies.append(item.record)
            if replies:
                # One call a batch: waking the event loop costs a system call.
                self._loop.call_soon_threadsafe(self._deliver, replies)
        self.reader.close()
