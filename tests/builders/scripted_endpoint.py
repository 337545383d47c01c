"""An endpoint for agents, behind the real client."""

import json
from dataclasses import dataclass, field

import httpx2


@dataclass
class ScriptedEndpoint:
    """Answers one scripted message after the other; an integer is a status instead."""

    script: list[dict[str, object] | int]
    seen: list[dict[str, object]] = field(default_factory=list)
    base_url: str = "http://scripted/v1"
    api_key: str = "key"
    model: str = "policy"
    messages: list[dict[str, object]] = field(default_factory=list)
    numbered: bool = False
    """True if each answer has an id of its own."""

    @property
    def http_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(json.loads(request.content))
        answer = self.script.pop(0)
        if isinstance(answer, int):
            return httpx2.Response(answer, json={"error": {"message": "no"}})
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        name = f"r{len(self.seen)}" if self.numbered else "r"
        body = {"id": name, "object": "chat.completion", "created": 0, "model": "policy"}
        return httpx2.Response(200, json={**body, "choices": [choice]})
