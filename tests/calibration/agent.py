"""Agent of the recorded runs: three turns of drawn lengths, with a drawn wait before the next."""

import asyncio
from random import Random
from typing import Any

TURNS, MOST_TOKENS, LEAST_TOKENS = 3, 120, 8
LENGTH, WAIT = (4.2, 0.5), (-1.5, 0.5)
"""Mean and standard deviation of the logarithm of tokens, and of seconds."""


async def run(task: Any, session: Any) -> float:
    """Play a session; its draws follow from its id."""
    draws = Random(session.session_id)
    messages: list[Any] = []
    for number in range(TURNS):
        messages.append({"role": "user", "content": "go"})
        tokens = min(MOST_TOKENS, max(LEAST_TOKENS, round(draws.lognormvariate(*LENGTH))))
        answer = await session.http_client.post(
            f"{session.base_url}/chat/completions",
            headers={"authorization": f"Bearer {session.api_key}"},
            json={"model": session.model, "messages": messages, "max_tokens": tokens},
        )
        answer.raise_for_status()
        messages.append(answer.json()["choices"][0]["message"])
        if number < TURNS - 1:
            await asyncio.sleep(draws.lognormvariate(*WAIT))
    return float(int(session.session_id.split(".")[1]) % 2)
