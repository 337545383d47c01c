"""A vLLM server's HTTP client; every call has a deadline.

`/pause`, `/update_weights` and others belong to vLLM's development mode and can do anything: only
this process may reach the server.
"""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.adapter import CONFIG
from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.engine.errors import EngineError
from seamlessflow.producers.rollout.vllm_engine import protocol
from seamlessflow.producers.rollout.vllm_engine.protocol import TokenEvent

_CONNECT_S = 10.0
_IDLE_S = 2.0
"""Lifetime of an idle connection on this side. It must be well below the server's (5 s by default):
a call over a connection that the server just closed fails."""

_JSON = {"content-type": "application/json"}


class ServerFailed(EngineError):
    """A call to the server that failed."""

    def __init__(self, call: str, reason: str) -> None:
        self.call = call
        self.reason = reason
        super().__init__(f"{call} of vLLM: {reason}")


class VllmClient:
    """A client that belongs to the event loop that made it.

    `timeout_s` bounds every call, `stall_timeout_s` the silence within a stream.
    """

    def __init__(self, url: str, timeout_s: float, stall_timeout_s: float) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            # Every request has a connection: the server, not the client, decides which ones wait.
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S
            ),
            trust_env=False,  # no proxy between a worker and its server
        )
        self._stream_timeout = httpx.Timeout(stall_timeout_s, connect=_CONNECT_S)
        self.adapter: str | None = None
        """Name of the adapter that requests ask for; None: they ask for the model itself."""

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def context_length(self) -> int:
        """Return the most tokens that prompt and completion may have together."""
        models = (await self._call("GET", "/v1/models")).json()
        return int(models["data"][0]["max_model_len"])

    async def end_all(self) -> None:
        """Stop sampling; all requests in the server end with "abort". Returns when none runs."""
        await self._call("POST", "/pause", params={"mode": "abort", "clear_cache": "false"})

    async def take_over(self) -> None:
        """Stop what another process left under way in the server: its requests, and an update."""
        await self.end_all()
        await self._call("POST", "/collective_rpc", json={"method": "end_open_update"})

    async def resume(self) -> None:
        """Let the server sample again."""
        await self._call("POST", "/resume")

    async def load(self, directory: Path, label: str) -> None:
        """Load new weights, or another adapter, under a new label; drop the old ones' KV."""
        path = str(directory.absolute())
        if (directory / CONFIG).exists():
            await self._load_adapter(path, f"adapter-{uuid.uuid4().hex[:12]}")
        else:
            await self._call("POST", "/start_weight_update")
            staged = {"update_info": {"directory": path}}
            await self._call("POST", "/update_weights", json=staged)
            await self._call("POST", "/finish_weight_update", json={})
        reset = await self._call("POST", "/reset_prefix_cache")
        if not reset.json()["success"]:
            raise ServerFailed("/reset_prefix_cache", "old KV is still held")
        await self.label(label)

    async def label(self, label: str) -> None:
        """Set the version with which the server labels tokens from here on."""
        await self._call("POST", "/update_weight_version", json={"new_version": label})

    async def sleep(self) -> None:
        """Free the device's memory; the weights move to the host's."""
        await self._call("POST", "/sleep", params={"level": 1})

    async def wake(self) -> None:
        """Move the weights back to the device; the server accepts requests again."""
        await self._call("POST", "/wake_up")

    async def probe(self) -> None:
        """Sample one token. Raises `ServerFailed`, at once for a model that vLLM cannot run."""
        body = protocol.generate("probe", [0], 0, 1, SamplingParams(1), "probe", self.adapter)
        try:
            async with self.generate(body, 0) as answer:
                async for _ in answer:
                    pass
        except (protocol.RequestRefused, protocol.AnswerInvalid) as error:
            raise ServerFailed("the probe", str(error)) from error

    async def health(self) -> None:
        """Raise `ServerFailed` if the engine in the server is dead."""
        await self._call("GET", "/health")

    @asynccontextmanager
    async def generate(
        self, body: bytes, top: int
    ) -> AsyncIterator[AsyncIterator[list[TokenEvent]]]:
        """Yield one request's stream: each list holds the events that arrived together.

        Leaving the context early ends the request in the server. Raises `RequestRefused`,
        `ServerFailed`, `AnswerInvalid`.
        """
        try:
            async with self._http.stream(
                "POST", protocol.GENERATE, content=body, headers=_JSON, timeout=self._stream_timeout
            ) as response:
                if response.status_code != httpx.codes.OK:
                    raise _error(protocol.GENERATE, response, await response.aread())
                yield _token_events(response, top)
        except httpx.HTTPError as error:
            raise ServerFailed(protocol.GENERATE, f"{type(error).__name__} {error}") from error

    async def _load_adapter(self, path: str, name: str) -> None:
        """Load an adapter instead of the last one, under a name that no adapter had."""
        last = self.adapter
        self.adapter = name
        if last is not None:
            await self._call("POST", "/v1/unload_lora_adapter", json={"lora_name": last})
        new = {"lora_name": name, "lora_path": path}
        await self._call("POST", "/v1/load_lora_adapter", json=new)

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
            raise ServerFailed(path, protocol.explanation(response.status_code, response.content))
        return response


async def _token_events(response: httpx.Response, top: int) -> AsyncIterator[list[TokenEvent]]:
    splitter = protocol.EventSplitter()
    async for data in response.aiter_raw():
        if events := [protocol.token_event(event, top) for event in splitter.feed(data)]:
            yield events


def _error(path: str, response: httpx.Response, body: bytes) -> SeamlessFlowError:
    reason = protocol.explanation(response.status_code, body)
    if response.is_client_error:
        return protocol.RequestRefused(reason)
    return ServerFailed(path, reason)
