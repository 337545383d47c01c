"""What the thread of an engine is to run between its steps (`EngineThread` puts it here)."""

import queue
from collections.abc import Callable

Command = Callable[[], object]


class CommandQueue:
    """Filled by any thread, emptied by the one that calls `run`, in the order they came."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, command: Command) -> None:
        """Does not wait."""
        self._queue.put(command)

    def run(self, wait: bool) -> None:
        """Run all commands that are there; with `wait`, at least one."""
        try:
            self._queue.get(block=wait)()
            while True:
                self._queue.get_nowait()()
        except queue.Empty:
            return
