"""Live pages: each is rendered once for all that show it, and sent as server-sent events.

A page is rendered when the log has changed, at most once a second. If the CPU time is spent, it is
rendered less often, so that the console takes at most a twentieth of a core.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable

from seamlessflow.infra.errors import SeamlessFlowError

LEAST_S = 1.0
"""Least time between two renderings of a page."""
LONGEST_S = 5.0
"""Time to the next rendering if the CPU time is spent, for example while a log is opened."""
SHARE = 0.047
"""Share of a core that the console takes while it follows a run, pages included.

With saved time, this is a twentieth over a minute.
"""
_MOST_SAVED_S = 0.1
_MOST_OVERDRAWN_S = 0.5
_KEEP_ALIVE_S = 15.0
MOST_CHANNELS = 40
_log = logging.getLogger(__name__)
RenderPage = Callable[[], str]


class LivePage:
    """One live page, and the browsers that show it."""

    def __init__(self, render: RenderPage) -> None:
        self.render = render
        self.readers: set[asyncio.Queue[bytes | None]] = set()
        self.version = -1
        """Log version that was rendered last."""
        self.rendered_s = -math.inf
        """Time of its last rendering."""
        self.event = b""
        """The newest page as it is sent."""

    def put(self, newest: bytes | None) -> None:
        """Give all readers the newest page, or None at the end; replace a page that is unread."""
        self.event = newest or self.event
        for reader in self.readers:
            with contextlib.suppress(asyncio.QueueEmpty):
                reader.get_nowait()
            reader.put_nowait(newest)


class CpuBudget:
    """CPU time that may be spent: a share of the time, less what the process took for all it does.

    What is saved or overdrawn counts for some seconds.
    """

    def __init__(self, now_s: float, cpu_s: float) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._left_s = 0.0

    def has_left(self, now_s: float, cpu_s: float) -> bool:
        """Return whether CPU time is left; `cpu_s`: what the process has used so far."""
        left_s = self._left_s + SHARE * (now_s - self._now_s) - (cpu_s - self._cpu_s)
        self._left_s = min(_MOST_SAVED_S, max(-_MOST_OVERDRAWN_S, left_s))
        self._now_s = now_s
        self._cpu_s = cpu_s
        return self._left_s > 0


class Broadcaster:
    """Channels for all live pages. All but `changed` is used on one event loop."""

    def __init__(self) -> None:
        self._channels: dict[str, LivePage] = {}
        self._version = 0
        self._rendered_s = -math.inf
        """When a page was last rendered."""
        self.renderings = 0
        """Count of renderings so far."""

    def changed(self) -> None:
        """Note that the log has changed. Any thread."""
        self._version += 1

    def has_room(self, name: str) -> bool:
        """Return whether a page with this name may be opened; only so many pages are rendered."""
        return name in self._channels or len(self._channels) < MOST_CHANNELS

    @property
    def readers(self) -> int:
        """Count of browsers that show a live page."""
        return sum(len(channel.readers) for channel in self._channels.values())

    async def events(self, name: str, render: RenderPage) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events with the page of this name, the present one first.

        `render` is called in another thread.
        """
        channel = self._channels.setdefault(name, LivePage(render))
        reader: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        channel.readers.add(reader)
        if channel.event:
            reader.put_nowait(channel.event)
        try:
            yield b": the page follows\n\n"
            while True:
                try:
                    sent = await asyncio.wait_for(reader.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": nothing new\n\n"
                    continue
                if sent is None:
                    return
                yield sent
        finally:
            channel.readers.discard(reader)
            if not channel.readers:
                self._channels.pop(name, None)

    def close(self) -> None:
        """End the event streams to all browsers."""
        for page in self._channels.values():
            page.put(None)

    async def run(self) -> None:
        """Render what is due, for ever."""
        budget = CpuBudget(time.monotonic(), time.process_time())
        while True:
            await asyncio.sleep(LEAST_S / 4)
            now_s = time.monotonic()
            waiting = [page for page in self._channels.values() if self._is_due(page, now_s)]
            has_left = budget.has_left(now_s, time.process_time())
            if waiting and (has_left or now_s - self._rendered_s >= LONGEST_S):
                await self._render(min(waiting, key=lambda page: page.rendered_s))

    def _is_due(self, page: LivePage, now_s: float) -> bool:
        return page.version != self._version and now_s - page.rendered_s >= LEAST_S

    async def _render(self, channel: LivePage) -> None:
        channel.version = self._version
        newest = channel.event
        try:
            newest = event(await asyncio.to_thread(channel.render))
        except SeamlessFlowError as error:  # Kafka is away, say: the page stays as it was
            _log.warning("%s", error)
        except Exception:  # a fault of this page, which ends no other
            _log.exception("a live page was not rendered")
        channel.rendered_s = self._rendered_s = time.monotonic()
        self.renderings += 1
        if newest != channel.event:
            channel.put(newest)


def event(html: str) -> bytes:
    """Return a server-sent event with a text."""
    lines = html.replace("\r", "\n").split("\n")
    return b"".join(b"data: %b\n" % line.encode() for line in lines) + b"\n"
