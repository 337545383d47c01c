"""A schema registry in this process that answers the documented requests of Confluent's."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_JSON = "application/vnd.schemaregistry.v1+json"


class MockRegistry:
    """Schemas by id, and the ids of each subject in the order of their versions."""

    def __init__(self) -> None:
        self.url = ""
        self.refuses = False
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}

    def answer(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, Any]:
        """Return status and JSON of the answer to a request."""
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                if kind != _JSON:
                    return 415, {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"}
                if self.refuses:
                    return 409, {"error_code": 409, "message": "Schema being registered is ..."}
                return 200, {"id": self._register(subject, json.loads(body)["schema"])}
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, {"schema": self.schemas[int(number) - 1]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


@contextmanager
def mock_registry() -> Iterator[MockRegistry]:
    """Yield a registry that serves on loopback."""
    registry = MockRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = self.headers.get("Content-Type") or ""
            status, answer = registry.answer(self.command, self.path, body, kind)
            self.send_response(status)
            self.send_header("Content-Type", _JSON)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, name="mock registry")
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
