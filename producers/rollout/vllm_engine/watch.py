"""Finds out that a vLLM server is lost although nobody waits for an answer of it."""

import asyncio

from producers.rollout.vllm_engine.client import ServerFailed
from producers.rollout.vllm_engine.loop import VllmLoop
from producers.rollout.vllm_engine.server import VllmServer

LOOK_S = 0.5
ASK_EVERY = 10
"""Looks between two questions after its health."""


async def watch(loop: VllmLoop, server: VllmServer | None) -> None:
    """Until the engine has failed. `server` is None where another one started it."""
    looks = 0
    while loop.state.error is None:
        await asyncio.sleep(LOOK_S)
        looks += 1
        if server is not None and (status := server.exit_status) is not None:
            loop.fail(f"it ended with status {status}:\n{server.tail()}")
        elif looks % ASK_EVERY == 0:
            try:
                await loop.client.health()
            except ServerFailed as error:
                loop.fail(str(error))
