"""Agent of the demo with a real model: one question to the unmodified `openai` client.

`producers/agents` runs it as `seamlessflow.demo.sums.agent:run`.
"""

from openai import AsyncOpenAI

from seamlessflow.demo.agent import ModelEndpoint
from seamlessflow.demo.sums.task import SumTask, dialogue, sum_reward

MAX_TOKENS = 4
"""Most tokens of an answer: two digits and the end of the turn are three."""


async def run(task: SumTask, session: ModelEndpoint) -> float:
    """Ask for the answer and return its reward. Raises the errors of the client."""
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    completion = await client.chat.completions.create(
        model=session.model, messages=dialogue(task), max_tokens=MAX_TOKENS
    )
    return sum_reward(task, completion.choices[0].message.content or "")
