"""Calls to a vLLM server, each with a deadline. Owned by the event loop that made it.

`/pause`, `/collective_rpc` and their like belong to its development mode: no one but this process
should reach the server.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from infra.errors import SeamlessFlowError
from producers.rollout.engine.contract import SamplingParams
from producers.rollout.engine.errors import EngineError
from producers.rollout.vllm_engine.protocol import (
    GENERATE,
    AnswerInvalid,
    EventSplitter,
    RequestRefused,
    TokenEvent,
    explanation,
    generate,
    token_event,
)

_CONNECT_S = 10.0
_IDLE_S = 2.0
"""How long an idle connection is kept. Must be well below what the server keeps one (5 s unless
told otherwise): a call over a connection that the server just closed fails."""

_JSON = {"content-type": "application/json"}


class ServerFailed(EngineError):
    """A call to the server that did not do what it had to."""

    def __init__(self, call: str, reason: str) -> None:
        self.call = call
        self.reason = reason
        super().__init__(f"{call} of vLLM: {reason}")


class VllmClient:
    """`timeout_s` bounds every call; `stall_timeout_s` how long a stream may be silent."""

    def __init__(self, url: str, timeout_s: float, stall_timeout_s: float) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S
            ),
            trust_env=False,
        )
        self._stream_timeout = httpx.Timeout(stall_timeout_s, connect=_CONNECT_S)

    async def close(self) -> None:
        """Ends all connections."""
        await self._http.aclose()

    async def context_length(self) -> int:
        """Most tokens of prompt and completion."""
        models = (await self._call("GET", "/v1/models")).json()
        return int(models["data"][0]["max_model_len"])

    async def end_all(self) -> None:
        """No step runs when it returns; what was under way ends with "abort"."""
        await self._call("POST", "/pause", params={"mode": "abort", "clear_cache": "false"})

    async def resume(self) -> None:
        """Steps go on."""
        await self._call("POST", "/resume")

    async def load(self, directory: Path, label: str) -> None:
        """New weights under a new label, and no KV of the old ones."""
        reload = {"method": "reload_policy", "kwargs": {"weights_path": str(directory.absolute())}}
        await self._call("POST", "/collective_rpc", json=reload)
        reset = await self._call("POST", "/reset_prefix_cache")
        if not reset.json()["success"]:
            raise ServerFailed("/reset_prefix_cache", "old KV is still held")
        await self.label(label)

    async def label(self, label: str) -> None:
        """What tokens are said to be sampled by from here on."""
        await self._call("POST", "/update_weight_version", json={"new_version": label})

    async def sleep(self) -> None:
        """The device's memory is freed; weights go to the host's."""
        await self._call("POST", "/sleep", params={"level": 1})

    async def wake(self) -> None:
        """Back to the device; the server takes requests again."""
        await self._call("POST", "/wake_up")

    async def probe(self) -> None:
        """One token, so that a model that the server cannot run is found out at once."""
        body = generate("probe", [0], 0, 1, SamplingParams(1), "probe")
        try:
            async with self.generate(body, 0) as answer:
                async for _ in answer:
                    pass
        except (RequestRefused, AnswerInvalid) as error:
            raise ServerFailed("the probe", str(error)) from error

    async def health(self) -> None:
        """Raises `ServerFailed` if its engine is dead."""
        await self._call("GET", "/health")

    @asynccontextmanager
    async def generate(
        self, body: bytes, top: int
    ) -> AsyncIterator[AsyncIterator[list[TokenEvent]]]:
        """Pieces as they come, all that came at once together. Leaving early ends the request.

        Raises `RequestRefused`, `ServerFailed`, `AnswerInvalid`.
        """
        try:
            async with self._http.stream(
                "POST", GENERATE, content=body, headers=_JSON, timeout=self._stream_timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    raise _error(GENERATE, response, await response.aread())
                yield _token_events(response, top)
        except httpx.HTTPError as error:
            raise ServerFailed(GENERATE, f"{type(error).__name__} {error}") from error

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None = None,
        json: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        try:
            response = await self._http.request(method, path, params=params, json=json)
        except httpx.HTTPError as error:
            raise ServerFailed(path, f"{type(error).__name__} {error}") from error
        if response.status_code != httpx.codes.OK:
            raise ServerFailed(path, explanation(response.status_code, response.content))
        return response


async def _token_events(response: httpx.Response, top: int) -> AsyncIterator[list[TokenEvent]]:
    splitter = EventSplitter()
    async for data in response.aiter_raw():
        if events := [token_event(event, top) for event in splitter.feed(data)]:
            yield events


def _error(path: str, response: httpx.Response, body: bytes) -> SeamlessFlowError:
    reason = explanation(response.status_code, body)
    if response.is_client_error:
        return RequestRefused(reason)
    return ServerFailed(path, reason)
