"""Agent for the part `run`: one text, and its share of digits as reward.

A policy with random weights cannot solve a task, but it can learn to write digits. So a rising
curve shows that sampled tokens, rewards and updates belong together.
"""

from collections.abc import Mapping

from openai import AsyncOpenAI

from seamlessflow.demo.agent import ModelEndpoint


async def run(task: Mapping[str, int], session: ModelEndpoint) -> float:
    """Let the policy write at most `task["tokens"]` tokens; reward the digits."""
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    completion = await client.chat.completions.create(
        model=session.model,
        messages=[{"role": "user", "content": f"key {task['key']}"}],
        max_tokens=task["tokens"],
    )
    return digit_share(completion.choices[0].message.content or "")


def digit_share(text: str) -> float:
    """Return the share of digits in a text, 0 for an empty one."""
    return sum(letter.isdigit() for letter in text) / max(1, len(text))
