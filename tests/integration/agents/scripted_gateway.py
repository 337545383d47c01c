"""A gateway that answers by a script and records its calls; real HTTP on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

import orjson
import uvloop

T = TypeVar("T")
Answering = Callable[[str, Mapping[str, object]], tuple[int, Mapping[str, object]]]


SILENCE: tuple[int, Mapping[str, object]] = (0, {})
"""Answer that is never sent."""


@dataclass(frozen=True)
class Call:
    """One call to the gateway."""

    path: str
    authorization: str
    key: str
    body: Mapping[str, object]


def accepting(path: str, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
    """Accept every call."""
    if path == "/sessions":
        name = body["session_id"]
        return 201, {"api_key": f"key of {name}", "base_url": f"http://gateway/sessions/{name}/v1"}
    return 200, {}


def on_uvloop(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine on the event loop that the agents process uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def refusal(status: int, code: str) -> tuple[int, Mapping[str, object]]:
    """Return an error in OpenAI's format."""
    return status, {"error": {"message": HTTPStatus(status).phrase, "type": "x", "code": code}}


@dataclass
class ScriptedGateway:
    """A gateway: its URL, and its calls so far."""

    answering: Answering = accepting
    url: str = ""
    calls: list[Call] = field(default_factory=list)

    def paths(self) -> list[str]:
        """Return the called paths in order."""
        return [call.path for call in self.calls]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ScriptedGateway"]:
        """Yield a gateway that listens on a free port."""
        served: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.add(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            if served:
                await asyncio.wait(served, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = first.split(" ")[1]
        sent: Mapping[str, object] = orjson.loads(body)
        key = headers.get("idempotency-key", "")
        self.calls.append(Call(path, headers.get("authorization", ""), key, sent))
        status, answer = self.answering(path, sent)
        if not status:
            return
        content = orjson.dumps(answer)
        writer.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"content-length: {len(content)}\r\n\r\n".encode()
            + content
        )
