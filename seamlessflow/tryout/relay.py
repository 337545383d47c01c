"""A relay between an environment and the gateway: it shows each call to the scripted policy.

It keeps what was sent and answered. All passes as it is. An answer is passed on once it is whole,
even if it is streamed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import unquote, urlsplit

import httpx

from seamlessflow.infra.network.addresses import HOST

_SESSIONS = "/sessions/"
_NOT_PASSED = frozenset(
    {"host", "connection", "content-length", "accept-encoding", "transfer-encoding"}
)
_RETRIES = "x-stainless-retry-count"
"""Header in which the vendors' clients count the repeats of a call."""
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class WantedAnswer:
    """Answer that the scripted policy wants to give to a call."""

    tool: str = ""
    """Function that it calls; empty for a text."""
    unwritten: str = ""
    """Reason why the policy's template cannot write it; empty if it can."""


@dataclass(frozen=True, slots=True)
class SentCall:
    """An environment's call, and its answer."""

    session_id: str
    """Session that its path or its key names; empty if none does."""
    method: str
    path: str
    """Path behind the session's path."""
    query: str
    body: bytes
    repeats: int
    """Count of earlier tries that the client names."""
    status: int = 0
    answer: bytes = b""
    wanted: WantedAnswer | None = None
    """None for a call that samples nothing, or that the gateway cannot read."""


Asked = Callable[[SentCall], WantedAnswer | None]


class Relay(ThreadingHTTPServer):
    """Server on a free port of loopback."""

    daemon_threads = True

    def __init__(self, gateway: str, asked: Asked) -> None:
        """`asked` gets each call before it is passed on, and chooses its answer."""
        super().__init__((HOST, 0), _RelayHandler)
        self.gateway = gateway
        self.asked = asked
        self.url = f"http://{HOST}:{self.server_port}"
        self.client = httpx.Client(timeout=_LIMIT_S, trust_env=False)
        self.calls: list[SentCall] = []
        """All calls, in the order in which they were answered."""
        self.sessions: dict[str, str] = {}
        """Session ids by key."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Leave out the lines about a client that went away."""


@contextmanager
def relay(gateway: str, asked: Asked) -> Iterator[Relay]:
    """Yield a relay to a gateway's URL."""
    with Relay(gateway, asked) as server, server.client:
        thread = threading.Thread(target=server.serve_forever, name="relay", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _RelayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Pass a call on, and its answer back."""
        relay = cast(Relay, self.server)
        call = self._call(relay)
        wanted = relay.asked(call)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED
        }
        answer = relay.client.request(
            self.command, f"{relay.gateway}{self.path}", content=call.body, headers=headers
        )
        relay.calls.append(
            replace(call, status=answer.status_code, answer=answer.content, wanted=wanted)
        )
        self.send_response(answer.status_code)
        for name in ("content-type", "retry-after"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST
    do_HEAD = do_POST

    def _call(self, relay: Relay) -> SentCall:
        parts = urlsplit(self.path)
        session_id, path = _split(parts.path)
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = key or self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or ""
        repeats = self.headers.get(_RETRIES, "0")
        return SentCall(
            session_id or relay.sessions.get(key, ""),
            self.command,
            path,
            parts.query,
            self._body(),
            int(repeats) if repeats.isdecimal() else 0,
        )

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)


def _split(path: str) -> tuple[str, str]:
    """Return the session that a path names, and the path behind it."""
    if not path.startswith(_SESSIONS):
        return "", path
    session_id, slash, rest = path.removeprefix(_SESSIONS).partition("/")
    return unquote(session_id), slash + rest
