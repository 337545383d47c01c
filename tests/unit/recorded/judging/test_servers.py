"""A policy of the run as a judge: each question is a session behind the gateway."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.gateway_client.connections import HttpAnswer
from seamlessflow.recorded.judging.servers import ModelAway, ModelRefused, PolicyServer
from seamlessflow.recorded.judging.settings import ModelSection
from seamlessflow.recorded.judging.verdict import failed_try
from tests.builders.judging import seen_session

SESSION = seen_session()
KEY = "sf-admin"
BODY = {"model": "referee", "messages": []}
CHAT = "chat/completions"


class Gateway:
    """A gateway of sessions that answers a chat with this status, or not at all."""

    def __init__(self, status: int | None = 200, opening: int = 201) -> None:
        self._status = status
        self._opening = opening
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        """Path, key and body of each call."""
        self._url = ""
        self._served: list[asyncio.Task[Any]] = []

    async def ask(self, timeout_s: float = 10) -> HttpAnswer:
        """Return what a policy server behind this gateway answers."""
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = ModelSection(policy="referee", prompt="$answer", temperature=0.5)
        async with server:
            client = GatewayClient(self._url, KEY, 1)
            try:
                judge = PolicyServer("right", settings, timeout_s, client)
                return await judge.answer(BODY, SESSION)
            finally:
                client.disconnect()
                await asyncio.gather(*self._served)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._served.append(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        path = head.split(" ")[1]
        key = head.split("authorization: Bearer ")[1].split("\r\n")[0]
        self.calls.append((path, key, orjson.loads(await reader.readexactly(length))))
        answer = self._answer(path)
        writer.write(answer)
        if not answer:
            await reader.read()  # until the client leaves
        writer.close()
        await writer.wait_closed()

    def _answer(self, path: str) -> bytes:
        status: int | None = 200
        content: dict[str, Any] = {}
        if path == "/sessions":
            status = self._opening
            content = {"base_url": f"{self._url}/sessions/x/v1", "api_key": "sf-x"}
        elif path.endswith(CHAT):
            status = self._status
        if status is None:
            return b""
        body = orjson.dumps(content)
        head = f"HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {len(body)}"
        return f"{head}\r\n\r\n".encode() + body


def test_a_question_is_a_session_that_no_trainer_reads_and_that_ends_with_its_answer() -> None:
    gateway = Gateway()

    assert asyncio.run(gateway.ask()).status == 200

    (_, key, opened), (chat, session_key, body), (closed, _, end) = gateway.calls
    name = opened["session_id"]
    assert (opened["policy"], opened["purpose"], opened["agent"]) == ("referee", "judge", "right")
    assert opened["metadata"] == {"judge": "right", "judged": SESSION.session_id}
    assert opened["overrides"]["temperature"] == 0.5
    assert (opened["group_id"], opened["max_age_s"]) == ("", 10)
    assert (chat, session_key, body) == (f"/sessions/x/v1/{CHAT}", "sf-x", BODY)
    assert (key, closed) == (KEY, f"/sessions/{name}/close")
    assert (end["status"], end["cause"]) == ("complete", "policy")


def test_an_answer_of_another_status_ends_the_session_as_no_answer() -> None:
    gateway = Gateway(status=503)
    assert asyncio.run(gateway.ask()).status == 503
    *_, (_, _, end) = gateway.calls
    assert (end["status"], end["cause"]) == ("aborted", "infrastructure")


@pytest.mark.parametrize("gateway", [Gateway(status=None), Gateway(opening=503)])
def test_a_policy_or_a_gateway_that_gives_no_answer_is_away(gateway: Gateway) -> None:
    with pytest.raises(ModelAway) as error:
        asyncio.run(gateway.ask(timeout_s=0.5))
    assert failed_try(error.value).outage


def test_a_gateway_that_refuses_the_session_counts() -> None:
    with pytest.raises(ModelRefused, match="401") as error:
        asyncio.run(Gateway(opening=401).ask())
    assert not failed_try(error.value).outage
