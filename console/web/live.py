"""Live pages: each is rendered once for all that show it, and sent as server-sent events.

A page is rendered when the log has changed, at most once a second, and so seldom that renderings of
all pages together take no more than a thirtieth of the time.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable

from seamlessflow.infra.errors import SeamlessFlowError

LEAST_S = 1.0
_TIMES = 30
"""Times of a rendering of all pages, from one of a page to its next."""
_KEEP_ALIVE_S = 15.0
MOST_CHANNELS = 40
_log = logging.getLogger(__name__)
RenderPage = Callable[[], str]


class LivePage:
    """One live page, with the browsers that show it."""

    def __init__(self, render: RenderPage) -> None:
        self.render = render
        self.readers: set[asyncio.Queue[bytes | None]] = set()
        self.version = -1
        """Version of the log that was rendered last."""
        self.due_s = 0.0
        self.took_s = 0.0
        """CPU time of its last rendering."""
        self.event = b""
        """The newest page as it is sent."""

    def put(self, newest: bytes | None) -> None:
        """Give all readers the newest page, or None at the end; an unread one is replaced."""
        self.event = newest or self.event
        for reader in self.readers:
            with contextlib.suppress(asyncio.QueueEmpty):
                reader.get_nowait()
            reader.put_nowait(newest)


class Broadcaster:
    """Channels of all live pages; used on one event loop, but for `changed`."""

    def __init__(self) -> None:
        self._channels: dict[str, LivePage] = {}
        self._version = 0
        self.renderings = 0
        """Number of renderings so far."""

    def changed(self) -> None:
        """Note that the log has changed. Any thread."""
        self._version += 1

    def has_room(self, name: str) -> bool:
        """Return whether a page of this name may be opened: so many different ones are rendered."""
        return name in self._channels or len(self._channels) < MOST_CHANNELS

    @property
    def readers(self) -> int:
        """Number of browsers that show a live page."""
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
        """End the events of all browsers."""
        for page in self._channels.values():
            page.put(None)

    async def run(self) -> None:
        """RenderPage what is due, for ever."""
        while True:
            await asyncio.sleep(LEAST_S / 4)
            now_s = time.monotonic()
            for channel in list(self._channels.values()):
                if channel.version != self._version and now_s >= channel.due_s:
                    await self._render(channel)

    async def _render(self, channel: LivePage) -> None:
        channel.version = self._version
        newest = channel.event
        try:
            html, channel.took_s = await asyncio.to_thread(_timed, channel.render)
            newest = event(html)
        except SeamlessFlowError as error:  # Kafka is away, say: the page stays as it was
            _log.warning("%s", error)
        except Exception:  # a fault of this page, which ends no other
            _log.exception("a live page was not rendered")
        pause = pause_s(page.took_s for page in self._channels.values())
        channel.due_s = time.monotonic() + pause
        self.renderings += 1
        if newest != channel.event:
            channel.put(newest)


def _timed(render: RenderPage) -> tuple[str, float]:
    """Return a page and the CPU time that it took; a busy machine takes longer."""
    began_s = time.thread_time()
    html = render()
    return html, time.thread_time() - began_s


def pause_s(renderings_s: Iterable[float]) -> float:
    """Return the time from a rendering of a page to its next, from those that all pages take."""
    return max(LEAST_S, _TIMES * sum(renderings_s))


def event(html: str) -> bytes:
    """Return a server-sent event with a text."""
    lines = html.replace("\r", "\n").split("\n")
    return b"".join(b"data: %b\n" % line.encode() for line in lines) + b"\n"
