"""uvicorn's HTTP protocol, with fewer writes to the socket and with limits on request heads.

`exchange.py` always sends an answer's head and its first body bytes one after the other. Writing
them together saves a system call on both sides, some 5 µs a call. A head without a body (HEAD) is
written when the connection closes, so such an answer must close it.

An HTTP/1.0 client knows no chunks: its stream ends where the connection closes.

A client may offer to go on in another protocol. For example, Java's client by default sends
`Connection: Upgrade, HTTP2-Settings` with `Upgrade: h2c`. The gateway accepts no offer. It must
then read the request as if nothing had been offered (RFC 9110, section 7.8). But httptools ends a
request with an offer right after its head, so that its body would be empty. Such a head is
therefore parsed again without the offer.

Bytes that are not HTTP get a JSON error, like all other errors. So do heads that are too slow or
too long.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from seamlessflow.producers.gateway.dialects.openai_shape import error_body
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import BODY_IS_HERE, NEXT_SIZE, TAKEN

LONGEST_HEAD = 65_536
"""Most bytes in a head that arrives in several reads; the transport limits a single read."""

_HEAD = b"HTTP/1.1 "
_CONTINUE = b"HTTP/1.1 100"
_WITHOUT_CHUNKS = "1.0"
_CONNECT = b"CONNECT"
_OFFERS = (b"upgrade", b"http2-settings")


class _OneWrite:
    """A transport that holds an answer's head back and writes it together with the next bytes."""

    def __init__(self, transport: asyncio.Transport, last_bytes_s: float) -> None:
        self._transport = transport
        self._last_bytes_s = last_bytes_s
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        # "100 Continue" has no body: the client waits for it before it sends its own.
        elif data.startswith(_HEAD) and not data.startswith(_CONTINUE):
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # Otherwise it would wait forever for a client that does not read.
            loop = asyncio.get_running_loop()
            loop.call_later(self._last_bytes_s, self._transport.abort)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """One client's connection."""

    head_timeout_s: ClassVar[float] = 30
    """Seconds for a whole head, from the moment when the connection or the head begins.

    Also the seconds within which a client must read the last bytes once the connection closes.
    """

    unread_timeout_s: ClassVar[float] = 600
    """Seconds within which a client must read enough that more can be written."""

    _lost = False
    _in_head = True
    _head_size = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        one_write = _OneWrite(transport, self.head_timeout_s)
        super().connection_made(cast(asyncio.Transport, one_write))
        self._offerless = _OfferlessParser(self)
        self.parser = cast(httptools.HttpRequestParser, self._offerless)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._stop_head_timer()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # Otherwise bytes to be written, such as a further call's answer, would wait forever.
        self._unread_timer = self.loop.call_later(self.unread_timeout_s, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop_unread_timer()
        super().resume_writing()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_size = 0
        super().on_message_begin()
        self.scope[TAKEN] = self._taken  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        if self._offerless.is_offer:
            return
        self._in_head = False
        super().on_headers_complete()
        if self.scope["http_version"] == _WITHOUT_CHUNKS:
            self.scope[NEXT_SIZE] = partial(_announce, self.cycle)  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        if self._offerless.is_offer:
            return
        # `Exchange.body` then needs no timer.
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        continues_head = self._in_head
        super().data_received(data)
        if not self._in_head:
            self._stop_head_timer()
            return
        self._start_head_timer()
        self._head_size += len(data) if continues_head else 0
        if self._head_size > LONGEST_HEAD:
            message = f"the head of the request is larger than {LONGEST_HEAD} bytes"
            self._refuse(ApiError(431, message, code="head_too_large"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, msg, code="invalid_http"))

    async def _taken(self) -> bool:
        # `drain` does not wait for bytes that fit into the transport's buffer below its limit.
        await self.flow.drain()
        return not self._lost

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            message = f"no whole head within {self.head_timeout_s:g} s"
            late = ApiError(408, message, code="timeout")
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._refuse, late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _refuse(self, error: ApiError) -> None:
        self._stop_head_timer()
        if self.transport.is_closing():
            return
        # An answer that has begun can only be cut off; an error inside it would look like its body.
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering:
            self.transport.write(_answer(error))
        self.transport.close()


class _OfferlessParser:
    """A parser for one connection's requests; it replaces httptools' parser.

    `protocol` has the callbacks and the `url` and `headers` that they collect. Its
    `on_headers_complete` and `on_message_complete` do nothing while `is_offer` is true.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._parser = _parser(protocol)

    @property
    def is_offer(self) -> bool:
        """Return whether the head that ends now offers another protocol, so it is parsed again."""
        # A CONNECT names the host that the client wants to talk to. It has no body.
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != _CONNECT

    def feed_data(self, data: bytes) -> None:
        """Read bytes. Raises as httptools does; an offer raises only at a CONNECT."""
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                if not self.is_offer:
                    raise
                data = self._head_without_offer() + data[offer.args[0] :]
                self._parser = _parser(self._protocol)

    def _head_without_offer(self) -> bytes:
        parser = self._parser
        protocol = self._protocol
        version = parser.get_http_version().encode()
        begin = b"%b %b HTTP/%b" % (parser.get_method(), protocol.url, version)
        return b"\r\n".join([begin, *_kept(protocol.headers), b"", b""])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _parser(protocol: object) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    # As in uvicorn: a client may send more after a request that closes the connection.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return a head's lines without the offer."""
    lines: list[bytes] = []
    for name, value in headers:
        if name == b"connection":
            words = [word for word in value.split(b",") if word.strip().lower() not in _OFFERS]
            value = b",".join(words).strip()
        if name not in _OFFERS:
            lines.append(name + b": " + value)
    return lines


def _announce(cycle: RequestResponseCycle, size: int) -> None:
    """Send the answer's next `size` bytes as they are, instead of as a chunk."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = size


def _answer(error: ApiError) -> bytes:
    body = error_body(error)
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        "content-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
