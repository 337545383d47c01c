"""What takes long (a step, a checkpoint, moving memory), one piece at a time, in a thread."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Work:
    """The loop begins a piece and takes its result in when it is there; errors are raised then."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "trainer work")
        self._running: Future[Any] | None = None
        self._after: Callable[[Any], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._running is None

    def begin(self, work: Callable[[], T], after: Callable[[T], None]) -> None:
        """Runs `work` in the thread; `after` gets its result in `collect`."""
        self._running, self._after = self._pool.submit(work), after

    def collect(self) -> bool:
        """Takes in a piece that is over; whether nothing is under way then."""
        if self._running is not None and self._running.done():
            self._take_in()
        return self.idle

    def finish(self) -> None:
        """Waits for what is under way, and for what follows from it."""
        while self._running is not None:
            self._take_in()

    def close(self) -> None:
        """Waits for the thread; its result is lost."""
        self._pool.shutdown(cancel_futures=True)

    def _take_in(self) -> None:
        running, after = self._running, self._after
        if running is not None and after is not None:
            result = running.result()
            self._running, self._after = None, None
            after(result)
