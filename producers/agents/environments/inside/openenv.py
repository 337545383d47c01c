"""Worlds behind an OpenEnv server: the policy acts by tool calls, whose schema the server has.

The user starts the server. Each episode is a connection to it, with its own world behind.
"""

import asyncio
import json
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from openenv import GenericEnvClient
from websockets.exceptions import ConnectionClosed


class Environment:
    """A server's worlds, each begun with other arguments to `reset`."""

    def __init__(
        self, server: str, resets: Any = None, turns: int = 50, wait_s: float = 120, **options: Any
    ) -> None:
        """`turns`: answer limit. `wait_s`: longest wait for the server and for a place at it.
        `options`: for each call, such as `max_tokens`.
        """
        if refused := {"env", "image", "use_docker"} & options.keys():
            raise ValueError(f"{refused} starts a container: start a server, and name it `server`")
        self._server = server.rstrip("/")
        self._turns = turns
        self._wait_s = wait_s
        self._resets: list[dict[str, Any]] = resets or [{"seed": seed} for seed in range(100)]
        self._options = options
        self._schema: dict[str, Any] = {}
        self._lists_tools = False  # True if the world's actions are calls of its own tools

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments of each reset."""
        for reset in self._resets:
            words = {name: str(value) for name, value in reset.items()}
            yield {"id": json.dumps(reset, sort_keys=True), "reset": reset, "metadata": words}

    async def warm_up(self) -> None:
        """Wait for the server and read its actions' schema."""
        self._schema = await self._waited(lambda: asyncio.to_thread(_schema_at, self._server))
        generic = ("Action", "CallToolAction", "ListToolsAction")
        self._lists_tools = self._schema["title"] in generic

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Act until the world ends; the reward is the sum over its steps.

        Raises `ConnectionError` if the server goes away, and `ValueError` if it scores no step.
        """
        client, tools, seen = await self._waited(lambda: self._begun(task["reset"]))
        connection = client._ws
        fit = True
        rewards: list[float | None] = []
        messages: list[Any] = [{"role": "user", "content": json.dumps(seen.observation)}]
        try:
            while not seen.done and len(messages) < 2 * self._turns:
                answer = await session.ask(messages, tools=tools, **self._options)
                messages.append(answer.model_dump(exclude_none=True))
                for action, reply in self._actions(answer):
                    if connection.close_code is not None:  # the client would begin another world
                        raise ConnectionError(f"{self._server} ended the connection and the world")
                    if result := await _stepped(client, action):
                        seen, rewards = result, [*rewards, result.reward]
                    fit = fit and result is not None
                    shown = json.dumps(seen.observation) if result else "No action of the schema."
                    messages.append({**reply, "content": shown})
        finally:
            await client.close()
        scored = [float(reward) for reward in rewards if reward is not None]
        if not scored and (rewards or seen.done):
            raise ValueError("the world scored no step")
        status = "complete" if seen.done else "truncated"
        return {"reward": sum(scored), "rewards": {"readable": float(fit)}, "status": status}

    async def _begun(self, reset: Mapping[str, Any]) -> tuple[Any, list[Any], Any]:
        """Return a client, its world's tools, and the world's first state."""
        client = GenericEnvClient(base_url=self._server)
        try:
            await client.connect()
            tools = [{"name": "act", "description": "Act.", "parameters": self._schema}]
            if self._lists_tools:
                listed = (await client.step({"type": "list_tools"})).observation["tools"]
                tools = [{"parameters": tool.pop("input_schema"), **tool} for tool in listed]
            functions = [{"type": "function", "function": tool} for tool in tools]
            return client, functions, await client.reset(**reset)
        except BaseException:
            await client.close()
            raise

    def _actions(self, answer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield each call, or else the text, as an action, and how the reply to it begins."""
        for call in answer.tool_calls or ():
            action = _loaded(call.function.arguments)
            if self._lists_tools:
                named = {"type": "call_tool", "tool_name": call.function.name}
                action = {**named, "arguments": action}
            yield action, {"role": "tool", "tool_call_id": call.id}
        if not answer.tool_calls:
            text = answer.content or ""
            first = self._schema.get("required", [])[:1]
            yield _loaded(text) or dict.fromkeys(first, text), {"role": "user"}

    async def _waited(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Return what an attempt returns, once the server is there and has a place."""
        end_s = time.monotonic() + self._wait_s
        while True:
            try:
                return await attempt()
            except (OSError, ConnectionClosed, RuntimeError) as error:
                lasting = isinstance(error, RuntimeError) and "CAPACITY_REACHED" not in str(error)
                if lasting or time.monotonic() > end_s:
                    raise
            await asyncio.sleep(1)


async def _stepped(client: Any, action: Mapping[str, Any]) -> Any:
    """Return the result of a step, or None if the action does not fit the schema."""
    try:
        return await client.step(action)
    except RuntimeError as error:
        if "VALIDATION_ERROR" in str(error):
            return None
        raise


def _loaded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _schema_at(server: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server}/schema", timeout=10) as answer:  # nosec B310 # the user's
        action: dict[str, Any] = json.load(answer)["action"]
    action["properties"].pop("metadata", None)  # every action has it, for the server's own use
    return action
