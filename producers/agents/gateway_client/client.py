"""The three calls the runner makes for a session: open, reward, close. Retries what may be retried.

The gateway's admin key stays here. Called by `episode.py`.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from infra.errors import SeamlessFlowError
from producers.agents.gateway_client.connections import Answer, CallFailed, HttpConnections
from producers.agents.gateway_client.outcome import CloseCall, RewardCall
from schemas.records import Task

_RETRIED = {0, 429, 502, 503, 504}
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class GatewayRefused(SeamlessFlowError):
    """The gateway answered a session call with an error, or not at all within its time."""

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
    """How an agent reaches its session."""

    base_url: str
    api_key: str


class GatewayClient:
    """Session calls to one gateway. Every call takes at most `call_limit_s`, retries included."""

    def __init__(self, url: str, admin_key: str, call_limit_s: float) -> None:
        self._connections = HttpConnections(url)
        self._headers = {"authorization": f"Bearer {admin_key}"}
        self._call_limit_s = call_limit_s

    async def open(
        self, session_id: str, task: Task, agent: str, max_age_s: float
    ) -> OpenedSession | None:
        """Opens a session for the task; None where somebody opened it before.

        Raises `GatewayRefused`.
        """
        fields = {name: value for name, value in vars(task).items() if name in _TASK_FIELDS}
        body = {**fields, "session_id": session_id, "agent": agent, "max_age_s": max_age_s}
        try:
            answer = await self._call("/sessions", body)
        except GatewayRefused as error:
            if error.code != "session_exists":
                raise
            if error.retried:  # an earlier try may have opened it, and its key is lost
                await self.close(session_id, _LOST)
            return None
        opened = answer.json()
        return OpenedSession(str(opened["base_url"]), str(opened["api_key"]))

    async def reward(self, session_id: str, reward: RewardCall) -> None:
        """Assigns a reward. Raises `GatewayRefused`."""
        body: dict[str, object] = {
            "name": reward.name,
            "value": reward.value,
            "final": reward.final,
        }
        if reward.response_id is not None:
            body["turn"] = reward.response_id
        await self._call(f"/sessions/{session_id}/reward", body)

    async def close(self, session_id: str, close: CloseCall) -> None:
        """Closes a session; one that is closed already stays as it is. Raises `GatewayRefused`."""
        try:
            await self._call(f"/sessions/{session_id}/close", vars(close))
        except GatewayRefused as error:
            if error.code != "session_closed":
                raise

    def disconnect(self) -> None:
        """Closes the idle connections."""
        self._connections.close()

    async def _call(self, path: str, body: object) -> Answer:
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

    async def _attempt(self, path: str, body: object) -> Answer:
        """The answer; status 0 where none came."""
        try:
            return await self._connections.post(path, body, self._headers)
        except CallFailed as error:
            detail = {"error": {"code": "unreachable", "message": str(error)}}
            return Answer(0, orjson.dumps(detail))


def _pauses() -> Iterator[float]:
    """Seconds between tries, doubling."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


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


def _refused(path: str, answer: Answer, retried: bool) -> GatewayRefused:
    error = answer.json().get("error")
    facts = error if isinstance(error, dict) else {}
    code = str(facts.get("code") or facts.get("type") or "")
    return GatewayRefused(path, answer.status, code, str(facts.get("message") or ""), retried)
