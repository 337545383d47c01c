"""A console that is served to a browser or a client of a test."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from seamlessflow.console.log.follower import ReadingProgress
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.console.web.app import application
from seamlessflow.console.web.console import Console, RunBeside, ShownRun
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.console.web.server import address, listener, run_server
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.network.addresses import HOST
from tests.builders.console.memory_log import RUN, MemoryLog, history_of


@dataclass(frozen=True)
class Served:
    """A console over a log in memory, which a test may append to."""

    url: str
    run_log: RunLog
    log: MemoryLog
    broadcaster: Broadcaster

    def append(self, items: Sequence[Received]) -> None:
        """Append records, as if the follower had read them."""
        self.log.add(items)
        self.run_log.append(items)
        self.broadcaster.changed()


@contextmanager
def served(
    items: Sequence[Received],
    host: str = HOST,
    token: str | None = None,
    beside: Mapping[str, RunBeside] | None = None,
) -> Iterator[Served]:
    """Serve the pages of these records, with other runs beside them."""
    run_log, log = history_of(items)
    broadcaster = Broadcaster()
    run = ShownRun(RUN, f" --out {RUN}", beside=beside or {})
    console = Console(run_log, ReadingProgress, run)
    app = application(console, broadcaster, host, token)
    stop = threading.Event()
    with listener(host, 0) as listening:
        url = address(listening, None)
        server = run_server(app, listening, stop.is_set, broadcaster.close)
        thread = threading.Thread(target=asyncio.run, args=(server,), name="served console")
        thread.start()
        try:
            yield Served(url.rstrip("/"), run_log, log, broadcaster)
        finally:
            stop.set()
            thread.join()
