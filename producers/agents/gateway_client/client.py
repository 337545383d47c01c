"""Client of the gateway's session calls: open, reward, close. Retries those that failed in passing.

Only this client knows the gateway's admin key. Called by `episode.py`.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from infra.errors import SeamlessFlowError
from producers.agents.gateway_client.connections import CallFailed, HttpAnswer, HttpConnections
from producers.agents.gateway_client.ending import CloseCall, RewardCall
from schemas.records import Task

_RETRIED = {0, 429, 502, 503, 504}
"""Statuses after which a call is made again; 0 stands for no answer."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TASK_FIELDS = {
    "policy",
    "purpose",
    "split",
    "task_id",
    "group_id",
    "sample",
    "attempt",
    "group_size",
    "min_group_size",
    "pinned_version",
    "metadata",
}
_LOST = CloseCall("aborted", "the answer to its opening was lost", "infrastructure")


class GatewayRefused(SeamlessFlowError):
    """The gateway answered a session call with an error, or gave no answer within its time.

    `retried`: the call had been made before, so that an earlier try may have had its effect.
    """

    def __init__(
        self, path: str, status: int, code: str, detail: str, retried: bool = False
    ) -> None:
        self.path = path
        self.status = status
        self.code = code
        self.detail = detail
        self.retried = retried
        super().__init__(f"POST {path}: {status or 'no answer'} {code} {detail}".rstrip())


@dataclass(frozen=True)
class OpenedSession:
    """Address and key with which an agent reaches its session."""

    base_url: str
    api_key: str


class GatewayClient:
    """Client of one gateway. A call takes at most `call_limit_s`, retries included."""

    def __init__(self, url: str, admin_key: str, call_limit_s: float) -> None:
        self._connections = HttpConnections(url)
        self._headers = {"authorization": f"Bearer {admin_key}"}
        self._call_limit_s = call_limit_s

    async def open(
        self, session_id: str, task: Task, agent: str, max_age_s: float
    ) -> OpenedSession | None:
        """Open a session for the task; return None if it was opened before.

        Raises `GatewayRefused`.
        """
        fields = {name: value for name, value in vars(task).items() if name in _TASK_FIELDS}
        body = {**fields, "session_id": session_id, "agent": agent, "max_age_s": max_age_s}
        try:
            answer = await self._call("/sessions", body)
        except GatewayRefused as error:
            if error.code != "session_exists":
                raise
            # An earlier try of this call may have opened the session: its key is lost with the
            # answer, so no agent can use the session.
            if error.retried:
                await self.close(session_id, _LOST)
            return None
        opened = answer.json()
        return OpenedSession(str(opened["base_url"]), str(opened["api_key"]))

    async def reward(self, session_id: str, reward: RewardCall) -> None:
        """Assign a reward. Raises `GatewayRefused`."""
        body: dict[str, object] = {
            "name": reward.name,
            "value": reward.value,
            "final": reward.final,
        }
        if reward.response_id is not None:
            body["turn"] = reward.response_id
        await self._call(f"/sessions/{session_id}/reward", body)

    async def close(self, session_id: str, close: CloseCall) -> None:
        """Close a session; leave it as it is if it is closed already. Raises `GatewayRefused`."""
        try:
            await self._call(f"/sessions/{session_id}/close", vars(close))
        except GatewayRefused as error:
            if error.code != "session_closed":
                raise

    def disconnect(self) -> None:
        """Close the idle connections."""
        self._connections.close()

    async def _call(self, path: str, body: object) -> HttpAnswer:
        failure = GatewayRefused(path, 0, "timeout", f"after {self._call_limit_s:g} s")
        pauses_s = _pauses()
        try:
            async with asyncio.timeout(self._call_limit_s):
                while True:
                    answer = await self._attempt(path, body)
                    if 0 < answer.status < 300:
                        return answer
                    failure = _refused(path, answer, retried=failure.code != "timeout")
                    if answer.status not in _RETRIED:
                        raise failure
                    pause_s = next(pauses_s)
                    await asyncio.sleep(answer.retry_after_s or pause_s)
        except TimeoutError:
            raise failure from None

    async def _attempt(self, path: str, body: object) -> HttpAnswer:
        """Return the answer, or one with status 0 if none came."""
        try:
            return await self._connections.post(path, body, self._headers)
        except CallFailed as error:
            detail = {"error": {"code": "unreachable", "message": str(error)}}
            return HttpAnswer(0, orjson.dumps(detail))


def _pauses() -> Iterator[float]:
    """Yield the seconds to wait before the next try, doubling up to a limit."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _refused(path: str, answer: HttpAnswer, retried: bool) -> GatewayRefused:
    error = answer.json().get("error")
    facts = error if isinstance(error, dict) else {}
    code = str(facts.get("code") or facts.get("type") or "")
    return GatewayRefused(path, answer.status, code, str(facts.get("message") or ""), retried)
