"""The agent on this project's sides: it asks turn by turn with the unmodified client."""

from collections.abc import Mapping
from typing import Any

from openai import AsyncOpenAI

from benchmarks.peers.shape import Sum


async def run(task: Mapping[str, Any], session: Any) -> float:
    """Ask all questions in a task; return the reward."""
    client: Any = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    asked = Sum(task["start"], tuple(task["changes"]))
    messages: list[dict[str, str]] = []
    for question in asked.questions():
        messages.append({"role": "user", "content": question})
        answer = await client.chat.completions.create(
            model=session.model, messages=messages, max_tokens=task["max_tokens"]
        )
        text = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
    return asked.reward([said["content"] for said in messages[1::2]])
