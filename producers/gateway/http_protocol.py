"""uvicorn's HTTP protocol with one write to the socket where it makes two, and bounds on heads.

An answer's head and its first body bytes are always sent one after the other here (`exchange.py`);
written together they save a system call, for the client too: some 5 µs of a call. A head without a
body (HEAD) is written when the connection closes, so such an answer must close it.

What is no HTTP, or has a head that does not end, is refused in the shape of all other errors.
"""

import asyncio
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from producers.gateway.errors import ApiError
from producers.gateway.exchange import BODY_IS_HERE
from producers.gateway.openai_shape import error_body

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

    _in_head = False
    _head_size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _OneWrite(transport)))

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
        if went_on and self._in_head:
            self._head_size += len(data)
            if self._head_size > LONGEST_HEAD and not self.transport.is_closing():
                message = f"the head of the request is larger than {LONGEST_HEAD} bytes"
                self._refuse(ApiError(431, message, code="head_too_large"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg, code="invalid_http"))

    def _refuse(self, error: ApiError) -> None:
        body = error_body(error)
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            "content-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
