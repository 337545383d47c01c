"""Thread that owns a `Reader` and delivers the records it reads."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.outage import Outage
from seamlessflow.infra.kafka.reader import Reader

T = TypeVar("T")
Deliver = Callable[[list[Received]], None]
_POLL_S = 0.1
_CLOSE_TIMEOUT_S = 15
_LOOK_S = 1.0
"""Time after which a caller that waits for an answer looks whether the thread still runs."""


class ReaderThread:
    """Thread that polls a reader until it is closed; other uses of the reader go through `call`.

    `deliver` and `failed` run on this thread.
    """

    def __init__(
        self,
        name: str,
        reader: Reader,
        deliver: Deliver,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.reader = reader
        """For use only inside `call`, `ask` and the reader's own callbacks."""
        self._deliver = deliver
        self._failed = failed
        self._calls: SimpleQueue[Callable[[Reader], None]] = SimpleQueue()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> "ReaderThread":
        """Begin to poll."""
        self._thread.start()
        return self

    def call(self, action: Callable[[Reader], None]) -> None:
        """Run `action` on the reader between two polls; return at once."""
        self._calls.put(action)

    def ask(self, question: Callable[[Reader], T], timeout_s: float = 60) -> T:
        """Run `question` on the reader between two polls; return or raise its result.

        Raises `TimeoutError`, also if the thread has ended; a question about offsets has its own
        limit.
        """
        answer: Future[T] = Future()

        def put(reader: Reader) -> None:
            try:
                answer.set_result(question(reader))
            except Exception as error:
                answer.set_exception(error)

        self._calls.put(put)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return answer.result(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            except TimeoutError as error:
                if answer.done():  # the question itself raised it, or it came just now
                    return answer.result()
                if time.monotonic() >= deadline or self._ended:
                    reason = f"{self._thread.name} did not answer within {timeout_s:g} s"
                    raise TimeoutError(reason) from error

    def await_position(self, partition: LogPartition, offset: int, outage: Outage) -> None:
        """Wait until all records before `offset` are delivered.

        Raises what `ask` and `Outage.endure` raise, or the error that the thread ended with.
        """
        topic, number = partition
        while (read := self._read_to(partition)) < offset:
            outage.endure_silence(f"{topic}[{number}] is read to {read} of {offset}")

    def close(self) -> None:
        """Stop polling and leave the consumer group."""
        self._closing.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _read_to(self, partition: LogPartition) -> int:
        try:
            return max(0, self.ask(lambda reader: reader.position(partition)))
        except TimeoutError:
            if self._error is not None:
                raise self._error from None
            raise

    @property
    def _ended(self) -> bool:
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                while not self._calls.empty():
                    self._calls.get()(self.reader)
                received = self.reader.poll(_POLL_S)
                if received:
                    self._deliver(received)
            self.reader.close()
        except BaseException as error:
            # The owner ends the process with it; otherwise it would wait for records for ever.
            self._error = error
            self._failed(error)
