"""uvicorn's HTTP protocol with one write to the socket where it makes two, and bounds on heads.

An answer's head and its first body bytes are always sent one after the other here (`exchange.py`);
written together they save a system call, for the client too: some 5 µs of a call. A head without a
body (HEAD) is written when the connection closes, so such an answer must close it.

What is no HTTP, or has a head that does not come or does not end, is refused in the shape of all
other errors.
"""

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from producers.gateway.dialects.openai_shape import error_body
from producers.gateway.errors import ApiError
from producers.gateway.exchange import BODY_IS_HERE

LONGEST_HEAD = 65_536
"""Bytes of a head that came in several pieces; what comes at once is bounded by the transport."""

_HEAD = b"HTTP/1.1 "
_CONTINUE = b"HTTP/1.1 100"


class _OneWrite:
    """A transport that keeps a head back until what follows it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        elif data.startswith(_HEAD) and not data.startswith(_CONTINUE):
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    head_timeout_s: ClassVar[float] = 30
    """Seconds in which a head has to come, once the connection is made or the head has begun."""

    _in_head = True
    _head_size = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _OneWrite(transport)))
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_head()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._in_head, self._head_size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        went_on = self._in_head
        super().data_received(data)
        if not self._in_head:
            self._unwatch_head()
            return
        self._watch_head()
        self._head_size += len(data) if went_on else 0
        if self._head_size > LONGEST_HEAD:
            message = f"the head of the request is larger than {LONGEST_HEAD} bytes"
            self._refuse(ApiError(431, message, code="head_too_large"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg, code="invalid_http"))

    def _watch_head(self) -> None:
        if self._late is None:
            message = f"no whole head within {self.head_timeout_s:g} s"
            late = ApiError(408, message, code="timeout")
            self._late = self.loop.call_later(self.head_timeout_s, self._refuse, late)

    def _unwatch_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, error: ApiError) -> None:
        self._unwatch_head()
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering:
            self.transport.write(_answer(error))
        self.transport.close()


def _answer(error: ApiError) -> bytes:
    body = error_body(error)
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        "content-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
