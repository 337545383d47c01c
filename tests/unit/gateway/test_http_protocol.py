"""Heads of requests: what is optional in them does not change how a request is read."""

import asyncio
import random
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from seamlessflow.producers.gateway.exchange import Exchange, Receive, Scope, Send
from seamlessflow.producers.gateway.http_protocol import HttpProtocol

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAA")
OPTIONAL = (
    H2C,
    (b"Connection: keep-alive, Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13"),
    (b"upgrade: TLS/1.0, HTTP/1.1", b"connection: upgrade"),
    (b"Connection: Upgrade",),
    (b"Upgrade: foo/2",),
    (b"Connection: TE", b"TE: trailers"),
    (b"Expect: 100-continue",),
    (b"Accept-Encoding: gzip, br, zstd",),
    (b"Content-Encoding: identity",),
    (b"X-Empty:",),
    (b"Accept: */*", b"Accept: application/json"),
    (b"Priority: u=1, i", b"Alt-Used: x", b"Via: 1.1 proxy", b"Forwarded: for=1.2.3.4"),
)


class Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Read on: a test feeds what it wants."""

    def resume_reading(self) -> None:
        """Read on."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request; one for `/stream` in two parts."""
    exchange = Exchange(scope, receive, send)
    body = await exchange.body(1_000_000, 30)
    if exchange.path == "/stream":
        await exchange.event(body)
        await exchange.event(b"", last=False)
        await exchange.event(b" and more", last=True)
    else:
        await exchange.answer(200, exchange.method.encode() + b" " + body)


async def exchanged(*parts: bytes, answers: int = 1) -> Transport:
    """Return the transport of a connection on which these bytes came, once all is answered."""
    config = uvicorn.Config(echo, http=HttpProtocol, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    protocol, transport = HttpProtocol(config, state, {}), Transport()
    protocol.connection_made(transport)
    for part in parts:
        if transport.closed:
            break
        protocol.data_received(part)
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        while state.total_requests < answers and not transport.closed:
            await asyncio.sleep(0)
    protocol.connection_lost(ConnectionResetError())
    return transport


def head(*lines: bytes, target: bytes = b"/", version: bytes = b"1.1") -> bytes:
    return b"\r\n".join([b"POST " + target + b" HTTP/" + version, b"Host: x", *lines, b"", b""])


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    places = sorted(rng.sample(range(1, len(data)), rng.randint(0, 4)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def body_of(answer: bytes) -> bytes:
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 100 ")), answer
    return answer.split(b"\r\n\r\n")[-1]


@pytest.mark.parametrize("offer", OPTIONAL, ids=lambda lines: lines[0].decode())
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_optional_header_leaves_the_body_as_it_is(
    offer: tuple[bytes, ...], chunked: bool, rng: random.Random
) -> None:
    length = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(BODY)
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) if chunked else BODY
    for lines in ((*offer, length), (length, *offer)):
        whole = head(*lines) + sent
        for parts in ([whole], cut(whole, rng), [bytes([byte]) for byte in whole]):
            transport = asyncio.run(exchanged(*parts))
            assert body_of(transport.written) == b"POST " + BODY


def test_any_optional_headers_leave_the_body_as_it_is(rng: random.Random) -> None:
    for _ in range(300):
        lines = [line for offer in rng.sample(OPTIONAL, rng.randint(1, 4)) for line in offer]
        lines.append(b"content-length: %d" % len(BODY))
        rng.shuffle(lines)
        transport = asyncio.run(exchanged(*cut(head(*lines) + BODY, rng)))
        assert body_of(transport.written) == b"POST " + BODY, lines


def test_each_request_of_a_connection_may_offer_another_protocol(rng: random.Random) -> None:
    request = head(*H2C, b"content-length: %d" % len(BODY)) + BODY
    other = b"GET /x HTTP/1.1\r\nhost: x\r\n" + b"\r\n".join(H2C) + b"\r\n\r\n"
    for data in (request + other + request, request + request + other + other):
        transport = asyncio.run(exchanged(*cut(data, rng), answers=data.count(b"HTTP/1.1")))
        assert transport.written.count(b"HTTP/1.1 200") == data.count(b"HTTP/1.1")
        assert transport.written.count(b"POST " + BODY) == data.count(b"POST ")


def test_an_offer_does_not_carry_a_second_length_past_the_parser() -> None:
    lengths = (b"content-length: 3", b"transfer-encoding: chunked")
    transport = asyncio.run(exchanged(head(*H2C, *lengths) + b"0\r\n\r\n"))
    assert transport.written.startswith(b"HTTP/1.1 400 ")


def test_a_connect_is_answered() -> None:
    transport = asyncio.run(exchanged(b"CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n\r\n"))
    assert transport.written.startswith(b"HTTP/1.1 ")


def test_an_older_client_gets_a_stream_without_chunks_until_the_connection_closes() -> None:
    length = b"content-length: %d" % len(BODY)
    old = asyncio.run(exchanged(head(length, target=b"/stream", version=b"1.0") + BODY))
    assert old.closed and b"chunked" not in old.written
    assert body_of(old.written) == BODY + b" and more"
    new = asyncio.run(exchanged(head(length, target=b"/stream") + BODY))
    assert not new.closed and b"transfer-encoding: chunked" in new.written


def test_an_older_client_gets_a_whole_answer_with_its_length() -> None:
    length = b"content-length: %d" % len(BODY)
    old = asyncio.run(exchanged(head(length, version=b"1.0") + BODY))
    assert old.closed and b"content-length: %d" % (len(BODY) + 5) in old.written
    assert body_of(old.written) == b"POST " + BODY
