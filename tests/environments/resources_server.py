"""A resources server with the routes of NeMo Gym 0.7: a counter for each session.

Written from the package's `base_resources_server.py`, `simple_agent` and
`example_session_state_mgmt`, since the package needs Python 3.13.14.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

COOKIE = "counter"
_TOOL = {"type": "function", "name": "increment_counter", "parameters": {"type": "object"}}
_TOOLS = [_TOOL, {**_TOOL, "name": "verify"}]
_ASKED = {"input": [{"role": "user", "content": "Add three."}], "tools": _TOOLS}
ROW: Mapping[str, Any] = {
    "responses_create_params": _ASKED,
    "initial_count": 3,
    "expected_count": 6,
}
"""A row of its data set. A tool has the name of a route that is none."""


class ResourcesServer(ThreadingHTTPServer):
    """The server, with the counters of its open sessions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.counters: dict[str, int] = {}
        self.posts: list[str] = []
        self.broken: dict[str, int] = {}
        """Statuses of routes that are out of order."""

    def answer(self, path: str, session: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return status and body of an answer."""
        self.posts.append(path)
        if path in self.broken:
            return self.broken[path], {"detail": "out of order"}
        if path == "/seed_session":
            self.counters[session] = body["initial_count"]
            return 200, {}
        if path == "/increment_counter":
            if not isinstance(body.get("count"), int):
                return 422, {"detail": "count is missing"}
            self.counters[session] += body["count"]
            return 200, {"success": True}
        if path == "/verify":
            reward = float(self.counters[session] == body["expected_count"])
            more = body.get("verdict", {})
            return 200, {**body, "reward": reward, **more}
        if path == "/close_session":
            del self.counters[session]
            return 200, {"closed": True}
        return 404, {"detail": "Not Found"}


@contextmanager
def resources_server() -> Iterator[ResourcesServer]:
    """Yield a server on a free port of loopback."""
    with ResourcesServer() as server:
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

    def do_GET(self) -> None:
        """Answer with the routes."""
        self._send(200, {"paths": ["/verify"]}, "")

    def do_POST(self) -> None:
        """Answer a call in the session of its cookie, or in a new one."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("cookie", "").removeprefix(f"{COOKIE}=") or uuid.uuid4().hex
        status, answer = cast(ResourcesServer, self.server).answer(self.path, session, body)
        self._send(status, answer, session)

    def _send(self, status: int, answer: Any, session: str) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if session:
            self.send_header("set-cookie", f"{COOKIE}={session}; Path=/; HttpOnly")
        self.end_headers()
        self.wfile.write(content)
