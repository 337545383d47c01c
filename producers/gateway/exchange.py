"""One HTTP request and its answer, over ASGI.

Bodies are limited in size and time. Nothing is sent until `answer` or the first `event`, so that a
status can still be chosen.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from producers.gateway.errors import ApiError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
HeaderList = Sequence[tuple[bytes, bytes]]
JSON = b"application/json"
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """A request to be read once and answered once."""

    __slots__ = ("_receive", "_send", "headers", "method", "path", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status = 0
        """Status sent; 0 before."""
        self._receive = receive
        self._send = send

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body. Raises `ApiError` (413 over `limit` bytes, 408 after `timeout_s`)."""
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        message = await self._receive()
        if not message.get("more_body"):
            body: bytes = message.get("body", b"")
            return _within(body, limit)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._rest(message["body"], limit)
        except TimeoutError:
            raise ApiError(408, f"no whole body within {timeout_s:g} s") from None

    async def gone(self) -> None:
        """Returns when the client has closed its connection, or has its whole answer."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self, status: int, body: bytes, headers: HeaderList = (), content_type: bytes = JSON
    ) -> None:
        """Sends a whole answer."""
        self.status = status
        listed = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]
        if self.method == "HEAD":
            listed.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": listed})
        await self._send({"type": "http.response.body", "body": body})

    async def event(self, data: bytes, headers: HeaderList = (), *, last: bool = False) -> None:
        """Sends bytes of an event stream; the first of them starts the answer with `headers`."""
        if not self.status:
            self.status = 200
            listed = [*_EVENT_HEADERS, *headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": listed})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _rest(self, body: bytes, limit: int) -> bytes:
        parts, size = [body], len(body)
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > limit:
                raise _too_large(limit)
        return b"".join(parts)


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> ApiError:
    message = f"the request is larger than {limit} bytes"
    return ApiError(413, message, code="request_too_large")
