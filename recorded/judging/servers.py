"""Servers for models that judge: an OpenAI server, or a policy of the run behind its gateway.

A call to a policy is a session on the log, with all its tokens. Its purpose is `judge`. So it
belongs to no group, no judge gets it, and none of its tokens is trained.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import uuid4

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.worker.judged_rewards import JUDGED, JUDGING
from seamlessflow.producers.agents.gateway_client.client import (
    GatewayClient,
    GatewayRefused,
    OpenedSession,
)
from seamlessflow.producers.agents.gateway_client.connections import HttpAnswer, HttpConnections
from seamlessflow.producers.agents.gateway_client.ending import CloseCall
from seamlessflow.recorded.judging.judged_session import JudgedSession
from seamlessflow.recorded.judging.settings import ModelSection
from seamlessflow.schemas.records import Sampling, Task

_CALL = "/chat/completions"
_SHARE = 0.9
"""Share of a try's time in which a policy answers: its silence is then an outage, not a failure."""
_SHOWN_BYTES = 300
_ANSWERED = CloseCall("complete", "", "policy")


class ModelAway(OSError):
    """A server that does not answer now; `again_after_s` is the pause that it asks for, or None."""

    def __init__(self, reason: str, again_after_s: float | None = None) -> None:
        self.again_after_s = again_after_s
        super().__init__(reason)


class ModelRefused(Exception):
    """A server that refuses the call, or answers in another form."""


class ModelServer(Protocol):
    """Server for a model, asked as in OpenAI's chat completions."""

    async def answer(self, body: Mapping[str, Any], session: JudgedSession) -> HttpAnswer:
        """Return the answer about a session, with any status. Raises `OSError`, `ModelRefused`."""

    def close(self) -> None:
        """Close the connections."""


class OpenAIServer:
    """Any server with OpenAI's `/chat/completions`. Used from one event loop."""

    def __init__(self, settings: ModelSection) -> None:
        self._connections = HttpConnections(settings.url)
        secret = settings.api_key.get_secret_value()
        self._headers = {"authorization": f"Bearer {secret}"} if secret else {}

    async def answer(self, body: Mapping[str, Any], session: JudgedSession) -> HttpAnswer:
        return await self._connections.post(_CALL, body, self._headers)

    def close(self) -> None:
        self._connections.close()


class PolicyServer:
    """A policy in the run that is served and not trained. Used from one event loop."""

    def __init__(
        self, judge: str, settings: ModelSection, timeout_s: float, gateway: GatewayClient
    ) -> None:
        """Prepare; `timeout_s`: a try's time limit."""
        self._judge = judge
        self._policy = settings.policy
        self._temperature = settings.temperature
        self._timeout_s = timeout_s
        self._gateway = gateway

    async def answer(self, body: Mapping[str, Any], session: JudgedSession) -> HttpAnswer:
        limit_s = _SHARE * self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._ask(body, session, limit_s)
        except TimeoutError:
            reason = f"no answer of the policy {self._policy} within {limit_s:g} s"
            raise ModelAway(reason) from None
        except GatewayRefused as error:
            if error.answered:
                raise ModelRefused(str(error)) from None
            raise ModelAway(str(error)) from None

    def close(self) -> None:
        """Leave the gateway's connections to the worker, since its other judges also use them."""

    async def _ask(
        self, body: Mapping[str, Any], session: JudgedSession, limit_s: float
    ) -> HttpAnswer:
        name = f"{JUDGING}-{uuid4().hex}"
        task = self._task(session)
        opened = await self._gateway.open(name, task, self._judge, self._timeout_s, limit_s)
        if opened is None:
            raise ModelAway(f"another call opened the session {name}")
        answer = await _called(opened, body)
        await self._gateway.close(name, _ANSWERED if answer.status == 200 else _failed(answer))
        return answer

    def _task(self, session: JudgedSession) -> Task:
        return Task(
            policy=self._policy,
            purpose=JUDGING,
            metadata={"judge": self._judge, JUDGED: session.session_id},
            payload=b"",
            issued_at_ms=now_ms(),
            deadline_ms=now_ms(),
            overrides=Sampling(temperature=self._temperature),
        )


def beginning(answer: HttpAnswer) -> str:
    """Return the beginning of an answer's body as text."""
    return answer.body[:_SHOWN_BYTES].decode(errors="replace")


async def _called(opened: OpenedSession, body: Mapping[str, Any]) -> HttpAnswer:
    connections = HttpConnections(opened.base_url)
    try:
        return await connections.post(_CALL, body, {"authorization": f"Bearer {opened.api_key}"})
    finally:
        connections.close()


def _failed(answer: HttpAnswer) -> CloseCall:
    reason = f"status {answer.status}: {beginning(answer)}"
    return CloseCall("aborted", reason, "infrastructure")
