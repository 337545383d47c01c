"""The thread for long work (a step, a checkpoint, moving memory), one piece at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Work:
    """The piece of work under way, if any. All methods are for the loop's thread.

    Only the piece itself runs in the work thread. What follows from it and its error come to the
    loop's thread, in `collect` and `finish`, so that state is changed by one thread alone.
    """

    def __init__(self, finished: Callable[[], None] = lambda: None) -> None:
        """`finished` is called from the work thread after each piece."""
        self._finished = finished
        self._pool = ThreadPoolExecutor(1, "trainer work")
        self._pending: tuple[Future[Any], Callable[[Any], None]] | None = None

    @property
    def idle(self) -> bool:
        """Return whether no piece is under way."""
        return self._pending is None

    def begin(self, work: Callable[[], T], after: Callable[[T], None]) -> None:
        """Run `work` in the work thread; `collect` or `finish` call `after` with its result."""
        self._pending = self._pool.submit(work), after
        self._pending[0].add_done_callback(lambda _: self._finished())

    def collect(self) -> bool:
        """Collect a finished piece; return whether none is under way then. Raise its error."""
        if self._pending is not None and self._pending[0].done():
            self._collect_result()
        return self.idle

    def finish(self) -> None:
        """Wait for the piece under way. Raise its error."""
        # What follows from a piece may begin another one.
        while self._pending is not None:
            self._collect_result()

    def close(self) -> None:
        """Wait for the thread; the result of its piece is lost."""
        self._pool.shutdown(cancel_futures=True)

    def _collect_result(self) -> None:
        if self._pending is not None:
            running, after = self._pending
            result = running.result()
            # Before `after`, which may begin the next piece.
            self._pending = None
            after(result)
