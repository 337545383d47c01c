"""A policy behind a real port, for agents that have a client of their own.

It has the dialects of Chat Completions and of Responses, without streams.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

Answer = Mapping[str, Any] | int
"""A message of the assistant, or a status without one."""


class PolicyServer(ThreadingHTTPServer):
    """An endpoint of Chat Completions: each key has a script of answers, given in turn."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"
        self.scripts: dict[str, list[Answer]] = {}
        self.requests: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        """Bodies of the requests, by key."""


def called(name: str, **arguments: object) -> dict[str, Any]:
    """Return a message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@contextmanager
def policy_server() -> Iterator[PolicyServer]:
    """Yield a server on a free port of loopback."""
    with PolicyServer() as server:
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
        """Answer with the next message."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = cast(PolicyServer, self.server)
        key = self.headers["authorization"].removeprefix("Bearer ")
        server.requests[key].append(body)
        answer = server.scripts[key].pop(0)
        if isinstance(answer, int):
            self._send(answer, {"error": {"message": "scripted"}})
        else:
            form = _response if self.path.endswith("/responses") else _completion
            self._send(200, form(body["model"], answer))

    def _send(self, status: int, value: Mapping[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _completion(model: str, message: Mapping[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "r", "object": "chat.completion", "created": 0, "model": model}
    return {**head, "choices": [choice], "usage": usage}


def _response(model: str, message: Mapping[str, Any]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{place}", "call_id": call["id"], **call["function"]}
        for place, call in enumerate(message.get("tool_calls", ()))
    ]
    if message.get("content"):
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        items.append({**said, "content": [part]})
    head = {"id": "r", "object": "response", "created_at": 0, "model": model, "tools": []}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", **message.get("response", {})}
    return {**head, "status": "completed", "output": items, **more}
