"""A relay between an environment and the gateway: the ids of tokens that the environment's own
client got.

It asks the gateway for log-probs of Chat Completions, which name each token by its id. All else
passes as it is.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx

from tests.e2e.running_system import DEADLINE_S

_ID = "token_id:"
_NOT_PASSED = {"host", "connection", "content-length", "accept-encoding", "transfer-encoding"}


class Relay(ThreadingHTTPServer):
    """Passes calls on to a gateway. `received` has the ids of each answer, by the session's key."""

    daemon_threads = True

    def __init__(self, gateway: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.gateway = gateway
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.client = httpx.Client(timeout=DEADLINE_S, trust_env=False)
        self.failing = False
        """True while each call gets status 503."""
        self.received: defaultdict[str, list[list[int]]] = defaultdict(list)


@contextmanager
def relay(gateway: str) -> Iterator[Relay]:
    """Yield a relay to a gateway's URL."""
    with Relay(gateway) as server, server.client:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Pass the call on, and the answer back."""
        server = cast(Relay, self.server)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if server.failing:
            self._send(503, "application/json", b'{"error": {"message": "away"}}')
            return
        headers = {name: value for name, value in self.headers.items() if _passed(name)}
        chat = self.path.endswith("/chat/completions")
        asked = {**body, "logprobs": True} if chat else body
        answer = server.client.post(f"{server.gateway}{self.path}", json=asked, headers=headers)
        if chat and answer.status_code == 200:
            key = self.headers["authorization"].removeprefix("Bearer ")
            server.received[key].append(list(_ids(answer.text, bool(body.get("stream")))))
        self._send(answer.status_code, answer.headers["content-type"], answer.content)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _passed(name: str) -> bool:
    return name.lower() not in _NOT_PASSED


def _ids(text: str, streamed: bool) -> Iterator[int]:
    lines = [
        line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")
    ]
    parts: list[dict[str, Any]] = [json.loads(part) for part in (lines if streamed else [text])]
    for part in parts:
        for choice in part["choices"]:
            for token in (choice.get("logprobs") or {}).get("content") or ():
                yield int(token["token"].removeprefix(_ID))
