"""Rows for a NeMo Gym resources server, over HTTP: the package itself runs elsewhere.

The policy is called as the package's simple agent calls it: by the Responses API. Each tool call is
posted to its tool's route. The server tells sessions apart by cookie, so each episode has its own
client. A masked sample is an environment failure, whatever reward came with it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_UNAVAILABLE = (502, 503, 504)
_RESERVED = {"verify", "seed_session", "close_session", "aggregate_metrics", "mcp"}
"""Routes of the server that are no tools."""


class Environment:
    """Rows from a JSONL file in the package's form, with the server that they are for."""

    def __init__(
        self, server: str, data: str, steps: int = 50, timeout_s: float = 600.0, **options: Any
    ) -> None:
        """`server`: the resources server's URL. `data`: file with its rows. `steps`: call limit.
        `timeout_s`: for each request to the server. `options`: for each call.
        """
        self._server = server
        self._data = Path(data)
        self._steps = steps
        self._timeout_s = timeout_s
        self._options = options

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield a task for each row, by its id if it has one."""
        with self._data.open(encoding="utf-8") as lines:
            for index, line in enumerate(lines):
                row = json.loads(line)
                name = row.get("id", row.get("task_id", index))
                yield {"id": f"{self._data.stem}-{name}", "row": row, "metadata": {}}

    async def warm_up(self) -> None:
        """Check that the server answers. Raises the error if it does not."""
        async with self._client() as server:
            (await server.get("/openapi.json")).raise_for_status()

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Seed, let the policy act, verify and close."""
        async with self._client() as server:
            (await server.post("/seed_session", json=task["row"])).raise_for_status()
            try:
                response = await self._response(task["row"], session, server)
                body = {**task["row"], "response": response}
                verified = (await server.post("/verify", json=body)).raise_for_status()
            finally:
                await _close(server)
        verdict = verified.json()
        if verdict.get("mask_sample"):
            reason = verdict.get("failure_reason") or "no reason"
            raise RuntimeError(f"the sample is masked: {verdict.get('failure_kind')}, {reason}")
        rewards = verdict.get("reward_components") or {}
        cut = response["status"] == "incomplete"
        status = "truncated" if cut else "complete"
        return {"reward": verdict["reward"], "rewards": rewards, "status": status}

    async def _response(self, row: Mapping[str, Any], session: Any, server: Any) -> dict[str, Any]:
        """Return the policy's last response, with the outputs of all steps."""
        asked = {**row["responses_create_params"], **self._options, "model": session.model}
        said = asked.pop("input")
        begun = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
        tools = {tool.get("name") for tool in asked.get("tools") or ()} - _RESERVED
        outputs: list[dict[str, Any]] = []
        for _ in range(self._steps):
            answer = await session.client.responses.create(**asked, input=[*begun, *outputs])
            response = answer.model_dump(mode="json", exclude_unset=True)
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            outputs += response["output"]
            if not calls or response.get("incomplete_details"):
                break
            outputs += [await _called(call, tools, server) for call in calls]
        else:
            response["status"] = "incomplete"
        return {**response, "output": outputs}

    def _client(self) -> Any:
        import httpx2

        return httpx2.AsyncClient(base_url=self._server, timeout=self._timeout_s, trust_env=False)


async def _called(call: Mapping[str, Any], tools: set[Any], server: Any) -> dict[str, Any]:
    """Return a tool's output. For a bad call, the policy reads what the server says about it."""
    output: dict[str, Any] = {"type": "function_call_output", "call_id": call["call_id"]}
    if call["name"] not in tools:
        return {**output, "output": json.dumps({"error": f"there is no tool {call['name']!r}"})}
    try:
        arguments = json.loads(call["arguments"])
    except ValueError as error:
        return {**output, "output": json.dumps({"error": f"Invalid tool call arguments: {error}"})}
    answer = await server.post(f"/{call['name']}", json=arguments)
    if answer.status_code in _UNAVAILABLE:
        answer.raise_for_status()
    return {**output, "output": answer.text}


async def _close(server: Any) -> None:
    """Close the cookie's session. Many servers keep none, so a refusal is no failure."""
    import httpx2

    with suppress(httpx2.HTTPError):
        await server.post("/close_session", json={})
