"""One HTTP request and its answer, over ASGI.

Request bodies are limited in size and time. Nothing is sent before `answer` or the first `event`,
so a handler can still choose the status. An answer repeats the client's `x-request-id`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from seamlessflow.producers.gateway.errors import ApiError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
HeaderList = Sequence[tuple[bytes, bytes]]
JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"
BODY_IS_HERE = "seamlessflow.body_is_here"
"""ASGI scope key: true once the whole body has arrived, so that reading it does not wait."""
TAKEN = "seamlessflow.taken"
"""ASGI scope key: the function that `Exchange.taken` calls."""
NEXT_SIZE = "seamlessflow.next_size"
"""ASGI scope key: a function, present only if the client does not know chunks.

Each stream part's size must be passed to it before the part is sent.
"""
# More digits than any real length has; int() of a very long text would take quadratic time.
_LONGEST_LENGTH = 20
_BEARER = b"bearer "
_CLOSE = (b"connection", b"close")
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_EVENT_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """One request, to be read once and answered once."""

    __slots__ = (
        "_hold",
        "_receive",
        "_scope",
        "_send",
        "headers",
        "held",
        "last",
        "method",
        "path",
        "request_id",
        "route",
        "status",
        "stream_type",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.route = ""
        """The path pattern by which `app.py` serves the request."""
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.request_id = _request_id(self.headers.get(b"x-request-id", b""))
        """This call's name in logs and in the answer's `x-request-id`; empty until it has one."""
        self.last = False
        """True if the answer closes the connection, so that the next call goes elsewhere."""
        self.status = 0
        """Status that was sent; 0 until then."""
        self.stream_type = EVENT_STREAM
        """Content type for an answer that is sent as events."""
        self.held = 0
        """Body bytes that the gateway holds."""
        self._hold: Callable[[int], None] = _hold_any
        self._scope = scope
        self._receive = receive
        self._send = send

    def hold_by(self, hold: Callable[[int], None]) -> None:
        """Let `hold` count each body part; it raises `ApiError` if there is no room."""
        self._hold = hold

    def parameter(self, name: bytes) -> bytes:
        """Return a URL parameter; empty if it is missing."""
        query: bytes = self._scope.get("query_string", b"")
        # One character for each byte: `parse_qsl` refuses bytes that are not ASCII.
        pairs = parse_qsl(query.decode("latin-1"), encoding="latin-1")
        wanted = name.decode()
        return next((value.encode("latin-1") for key, value in pairs if key == wanted), b"")

    def take_key_from_url(self) -> None:
        """Use the URL's `key` as the call's key if the headers have none."""
        key = self.parameter(b"key")
        if key and not key_of(self.headers):
            self.headers[b"x-goog-api-key"] = key

    async def body(self, limit: int, timeout_s: float) -> bytes:
        """Return the whole body.

        Raises `ApiError`: 413 over `limit` bytes, 408 after `timeout_s`, 415 if it is compressed.
        """
        self._refuse_encoded()
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:_LONGEST_LENGTH]) > limit:
            raise _too_large(limit)
        if self._scope.get(BODY_IS_HERE):
            # True for most calls. A timer would take a tenth of such a call's CPU.
            return await self._whole(limit)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._whole(limit)
        except TimeoutError:
            raise ApiError(408, f"no whole body within {timeout_s:g} s") from None

    async def taken(self) -> bool:
        """Wait until the client has read all but the last bytes; return False if it left before.

        Bytes sent after it left are dropped without an error.
        """
        wait: Callable[[], Awaitable[bool]] | None = self._scope.get(TAKEN)
        return wait is None or await wait()

    async def gone(self) -> None:
        """Return once the client has closed its connection or has its whole answer."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self, status: int, body: bytes, headers: HeaderList = (), content_type: bytes = JSON
    ) -> None:
        """Send a whole answer."""
        self.status = status
        listed = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *headers,
            *self._request_id_headers(),
        ]
        # `http_protocol.py` writes a head without a body when the connection closes.
        if self.method == "HEAD" or self.last:
            listed.append(_CLOSE)
        await self._send({"type": "http.response.start", "status": status, "headers": listed})
        await self._send({"type": "http.response.body", "body": body})

    async def event(self, data: bytes, headers: HeaderList = (), *, last: bool = False) -> None:
        """Send event-stream bytes. The first bytes start the answer, with `headers`."""
        if (announce := self._scope.get(NEXT_SIZE)) is not None:
            announce(len(data))
        if not self.status:
            self.status = 200
            kind = (b"content-type", self.stream_type)
            listed = [kind, *_EVENT_HEADERS, *headers, *self._request_id_headers()]
            if self.last:
                listed.append(_CLOSE)
            await self._send({"type": "http.response.start", "status": 200, "headers": listed})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _whole(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self._hold(len(parts[-1]))
            self.held = size
            more = message.get("more_body", False)
            if size > limit:
                raise _too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _refuse_encoded(self) -> None:
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b""):
            message = f"content-encoding {encoding.decode('latin-1')} is not supported"
            raise ApiError(415, message, code="unsupported_encoding", param="content-encoding")

    def _request_id_headers(self) -> HeaderList:
        if not self.request_id:
            return []
        # OpenAI's clients read the first, Anthropic's the second.
        return [(b"x-request-id", self.request_id), (b"request-id", self.request_id)]


def _hold_any(size: int) -> None:
    """Hold a body for which no limit is set."""


def key_of(headers: Mapping[bytes, bytes]) -> bytes:
    """Return a call's key; empty if it has none.

    It is in `authorization`, or else `x-api-key` (Anthropic's) or `x-goog-api-key` (Google's).
    """
    value = headers.get(b"authorization", b"")
    if value[: len(_BEARER)].lower() == _BEARER:
        return value[len(_BEARER) :].strip()
    return (headers.get(b"x-api-key") or headers.get(b"x-goog-api-key", b"")).strip()


def _request_id(sent: bytes) -> bytes:
    """Return the request id that a client sent, or nothing if a header cannot repeat it."""
    return sent if _REQUEST_ID.fullmatch(sent) else b""


def _too_large(limit: int) -> ApiError:
    message = f"the request is larger than {limit} bytes"
    return ApiError(413, message, code="request_too_large")
