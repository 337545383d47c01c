"""HTTP connections to one server that stay open, for POST calls with JSON bodies.

The agents process makes three calls a session. A general HTTP client would need ten times the CPU
for them, more than a small agent needs. Used by `client.py` from one event loop.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools
import orjson

from seamlessflow.infra.network.addresses import address_of


class CallFailed(OSError):
    """A call got no answer: the server could not be reached, or the connection broke."""


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP response's status and body."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    closing: bool = False
    """True if the server closed the connection after its answer."""

    def json(self) -> Mapping[str, object]:
        """Return the body as a JSON object; empty if it is anything else."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}


class _Connection(asyncio.Protocol):
    """Connection with at most one call under way."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    @property
    def usable(self) -> bool:
        return not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def call(self, request: bytes) -> asyncio.Future[HttpAnswer]:
        self._waiter = asyncio.get_running_loop().create_future()
        self._body = []
        self._headers = {}
        self.transport.write(request)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(CallFailed(f"the answer is not HTTP: {error}"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        keep = self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        if status < 200:  # an interim response; the final one follows
            return
        wait = self._headers.get(b"retry-after", b"")
        wait_s = float(wait) if wait.isdigit() else None
        answer = HttpAnswer(status, b"".join(self._body), wait_s, closing=not keep)
        if not keep:
            self.transport.close()
        self._parser = httptools.HttpResponseParser(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(CallFailed(f"the connection was closed: {error or 'by the server'}"))

    def _fail(self, error: CallFailed) -> None:
        self.transport.abort()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class HttpConnections:
    """Pool of connections to one server."""

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{base_url!r} is no http or https URL")
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._path = url.path.rstrip("/")
        self._netloc = url.netloc.rpartition("@")[2]
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: object, headers: Mapping[str, str]) -> HttpAnswer:
        """Send `body` as JSON and return the answer. Raises `CallFailed`; has no time limit."""
        connection = await self._connection()
        answered = False
        try:
            answer = await connection.call(self._request(path, _json(body), headers))
            answered = True
            return answer
        finally:
            if answered and connection.usable:
                self._idle.append(connection)
            else:  # the next call would get the answer to a cancelled one
                connection.transport.abort()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(
                _Connection, self._host, self._port, ssl=self._tls
            )
        except OSError as error:
            raise CallFailed(f"{address_of(self._host, self._port)}: {error}") from error
        return made

    def _request(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        lines = [
            f"POST {self._path}{path} HTTP/1.1",
            f"host: {self._netloc}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _json(body: object) -> bytes:
    """Return the body as JSON. Half a surrogate pair, which is no text, is spelt out."""
    try:
        return orjson.dumps(body)
    except TypeError:  # rare, so the whole body is looked through only then
        return orjson.dumps(_spelt(body))


def _spelt(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case Mapping():
            return {_spelt(name): _spelt(item) for name, item in value.items()}
        case list() | tuple():
            return [_spelt(item) for item in value]
        case _:
            return value
