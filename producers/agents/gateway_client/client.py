"""Client for the gateway's session calls: open, reward, close. Repeats calls if that may help.

Any gateway serves any session. So gateways get calls in turn, and a call that one does not answer
goes to the next. A gateway that does not serve is passed over for a while.

The client waits until an outage of Kafka or of a manager is over, however long it is. The manager
closes sessions that grow too old, so a call that comes too late is refused in the end. Only this
client knows the gateway's admin key. Called by `episode.py`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from uuid import uuid4

import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka import log
from seamlessflow.infra.settings import SamplingSection
from seamlessflow.producers.agents.gateway_client.connections import (
    CallFailed,
    HttpAnswer,
    HttpConnections,
)
from seamlessflow.producers.agents.gateway_client.ending import CloseCall
from seamlessflow.producers.agents.result import RewardCall
from seamlessflow.schemas.json_form import to_json
from seamlessflow.schemas.records import Task
from seamlessflow.schemas.topics import Headers

_log = log.logger(__name__)
_RETRIED = {0, 408, 429, 502, 503, 504}
"""Statuses after which a call is made again; 0 stands for no answer."""

UNAUTHORIZED = (401, 403)
"""Statuses that mean a wrong admin key."""

PASSED_OVER_S = 5.0
"""A gateway gets no calls for so long after it failed or closed a connection by itself."""

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
    "turn_limit",
    "pinned_version",
    "metadata",
}


class GatewayRefused(SeamlessFlowError):
    """The gateway answered a session call with an error, or not in time."""

    def __init__(self, path: str, status: int, code: str, detail: str) -> None:
        self.path = path
        self.status = status
        self.code = code
        self.detail = detail
        self.lasting = status in UNAUTHORIZED
        self.answered = status not in _RETRIED
        """False if the call may still be carried out: no try got an answer that counts."""
        super().__init__(f"POST {path}: {status or 'no answer'} {code} {detail}".rstrip())


@dataclass(frozen=True)
class OpenedSession:
    """Address and key with which an agent reaches its session."""

    base_url: str
    api_key: str = field(repr=False)


class GatewayClient:
    """Client for the gateways at `urls`, a list with commas.

    A try that got no answer within `call_limit_s` is made again.

    All tries of a call have one idempotency key: whichever is carried out, its answer is the same.
    """

    def __init__(self, urls: str, admin_key: str, call_limit_s: float) -> None:
        self._gateways = GatewayRotation(urls)
        self._headers = {"authorization": f"Bearer {admin_key}"}
        self._call_limit_s = call_limit_s

    def traced(self, headers: Headers) -> "GatewayClient":
        """Return a client on the same connections whose calls belong to this trace.

        The agent's calls in a session that it opens belong to the trace too.
        """
        if not headers:
            return self
        client = copy(self)
        client._headers = {**self._headers, **{name: value.decode() for name, value in headers}}
        return client

    async def open(
        self,
        session_id: str,
        task: Task,
        agent: str,
        max_age_s: float,
        limit_s: float,
        policies: Mapping[str, str] | None = None,
    ) -> OpenedSession | None:
        """Open a session for the task; return None if another call opened it before.

        `policies`: by module, the policy that answers it instead of the task's.
        Raises `GatewayRefused`, also if it could not be opened within `limit_s`.
        """
        fields = {name: value for name, value in vars(task).items() if name in _TASK_FIELDS}
        body = {**fields, "session_id": session_id, "agent": agent, "max_age_s": max_age_s}
        if policies:
            body["policies"] = dict(policies)
        if task.fork is not None:
            body["fork"] = orjson.Fragment(to_json(task.fork))
        if task.seed_session is not None:
            body["seed_session"] = orjson.Fragment(to_json(task.seed_session))
        if task.overrides is not None:
            overrides = task.overrides
            body["overrides"] = {
                name: getattr(overrides, name) for name in SamplingSection.model_fields
            }
        try:
            answer = await self._call("/sessions", body, limit_s)
        except GatewayRefused as error:
            if error.code != "session_exists":
                raise
            return None
        opened = answer.json()
        return OpenedSession(str(opened["base_url"]), str(opened["api_key"]))

    async def reward(self, session_id: str, reward: RewardCall) -> bool:
        """Assign a reward; return False if the session is pruned. Raises `GatewayRefused`."""
        body: dict[str, object] = {
            "name": reward.name,
            "value": reward.value,
            "final": reward.final,
            "source": reward.source,
        }
        if reward.response_id is not None:
            body["turn"] = reward.response_id
        try:
            await self._call(f"/sessions/{session_id}/reward", body)
        except GatewayRefused as error:
            if error.code != "session_pruned":
                raise
            return False
        return True

    async def close(self, session_id: str, close: CloseCall) -> bool:
        """Close a session; return False if it is closed already. Raises `GatewayRefused`."""
        try:
            await self._call(f"/sessions/{session_id}/close", vars(close))
        except GatewayRefused as error:
            if error.code != "session_closed":
                raise
            return False
        return True

    def disconnect(self) -> None:
        """Close the idle connections."""
        self._gateways.close()

    async def _call(self, path: str, body: object, limit_s: float | None = None) -> HttpAnswer:
        """Return the answer once the call is carried out. Raises `GatewayRefused`."""
        began_s = time.monotonic()
        failure = GatewayRefused(path, 0, "timeout", f"within {limit_s} s")
        headers = {**self._headers, "idempotency-key": uuid4().hex}
        pauses_s = _pauses()
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    answer = await self._attempt(path, body, headers)
                    if 0 < answer.status < 300:
                        return answer
                    failure = _refused(path, answer)
                    if answer.status not in _RETRIED:
                        raise failure
                    waited_s = time.monotonic() - began_s
                    _log.warning("%s; tried again, %.0f s so far", failure, waited_s)
                    if not self._gateways.any_serves():
                        pause_s = next(pauses_s)
                        await asyncio.sleep(answer.retry_after_s or pause_s)
        except TimeoutError:
            raise failure from None

    async def _attempt(self, path: str, body: object, headers: Mapping[str, str]) -> HttpAnswer:
        """Return the answer, or one with status 0 if none came."""
        gateway = self._gateways.choose()
        try:
            async with asyncio.timeout(self._call_limit_s):
                answer = await gateway.post(path, body, headers)
            if answer.closing or answer.status in _RETRIED:
                self._gateways.pass_over(gateway)
            return answer
        except CallFailed as error:
            reason = str(error)
        except TimeoutError:
            reason = f"not within {self._call_limit_s:g} s"
        self._gateways.pass_over(gateway)
        detail = {"error": {"code": "unreachable", "message": reason}}
        return HttpAnswer(0, orjson.dumps(detail))


class GatewayRotation:
    """Connections to the gateways at `urls`, a list with commas; it chooses one for each call."""

    def __init__(self, urls: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._gateways = [HttpConnections(url.strip()) for url in urls.split(",")]
        self._clock = clock
        self._back_at = dict.fromkeys(self._gateways, float("-inf"))
        self._next = 0

    def choose(self) -> HttpConnections:
        """Return the next gateway that serves; if none does, the one that failed first."""
        count = len(self._gateways)
        in_turn = [self._gateways[(self._next + place) % count] for place in range(count)]
        chosen = next((gateway for gateway in in_turn if self._serves(gateway)), None)
        chosen = chosen or min(in_turn, key=lambda gateway: self._back_at[gateway])
        self._next = (self._gateways.index(chosen) + 1) % count
        return chosen

    def pass_over(self, gateway: HttpConnections) -> None:
        """Give a gateway no calls for a while, if others serve."""
        self._back_at[gateway] = self._clock() + PASSED_OVER_S

    def any_serves(self) -> bool:
        """Return whether a gateway is left that is not passed over."""
        return any(self._serves(gateway) for gateway in self._gateways)

    def close(self) -> None:
        """Close the idle connections."""
        for gateway in self._gateways:
            gateway.close()

    def _serves(self, gateway: HttpConnections) -> bool:
        return self._back_at[gateway] <= self._clock()


def _pauses() -> Iterator[float]:
    """Yield the seconds to wait before the next try, doubling up to a limit."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _refused(path: str, answer: HttpAnswer) -> GatewayRefused:
    error = answer.json().get("error")
    facts = error if isinstance(error, dict) else {}
    code = str(facts.get("code") or facts.get("type") or "")
    return GatewayRefused(path, answer.status, code, str(facts.get("message") or ""))
