"""Agent of the load: two streamed turns; it retries each through the other gateway if one fails.

Run by the agents process of `faulty_run.py`, which names the gateways.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from itertools import cycle

import httpx

from seamlessflow.producers.agents.harness.session import AgentSession

GATEWAYS = "LOAD_GATEWAYS"
TURNS = 2
TOKENS = 12
_SILENCE_S = 3.0
_PAUSE_S = 0.2
_PASSING = (429, 500, 502, 503, 504)


async def run(task: Mapping[str, object], session: AgentSession) -> float:
    """Return 1 for every second sample of a group, so that there is something to learn."""
    sample = int(session.session_id.split(".")[1])
    await talk(task, session, [TOKENS] * TURNS)
    return float(sample % 2)


async def talk(task: Mapping[str, object], session: AgentSession, turns: Sequence[int]) -> None:
    """Ask for turns of so many tokens, each until a gateway has answered it whole."""
    sample = int(session.session_id.split(".")[1])
    urls = os.environ[GATEWAYS].split()
    gateways = cycle(urls[sample % len(urls) :] + urls[: sample % len(urls)])
    messages = [{"role": "user", "content": f"key {task['id']}"}]
    async with httpx.AsyncClient(timeout=_SILENCE_S, trust_env=False) as client:
        for turn, tokens in enumerate(turns):
            body = {"model": session.model, "messages": messages, "stream": True}
            body["max_tokens"] = tokens
            headers = {
                "authorization": f"Bearer {session.api_key}",
                "idempotency-key": f"{session.session_id}-{turn}",
            }
            while not await _answered(client, f"{next(gateways)}/v1", headers, body):
                await asyncio.sleep(_PAUSE_S)


async def _answered(
    client: httpx.AsyncClient, url: str, headers: Mapping[str, str], body: Mapping[str, object]
) -> bool:
    """Return True after a whole answer, False if another gateway must be asked."""
    try:
        async with client.stream(
            "POST", f"{url}/chat/completions", headers=headers, json=body
        ) as answer:
            if answer.status_code in _PASSING:
                return False
            answer.raise_for_status()
            return "data: [DONE]" in [line async for line in answer.aiter_lines()]
    except httpx.TransportError:
        return False
