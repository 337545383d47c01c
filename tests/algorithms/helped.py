"""Agent that plays Trail, in which a helper who knows the way makes the second move."""

import json
from collections.abc import Mapping
from typing import Any, cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.trail.game import TrailTask, Walk, question
from seamlessflow.demo.agent import MAX_TOKENS, TOOLS, ModelEndpoint

HELPED = 1
"""Place of the move that the helper makes."""


async def run(task: TrailTask, session: ModelEndpoint) -> Mapping[str, object]:
    """Play one session; return its reward and that of each sampled turn."""
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    walk, transcript = Walk(task), [dict(question(task))]
    rewards: dict[str, float] = {}
    while not walk.over:
        helped = len(walk.rewards) == HELPED
        if helped:
            answer = helping(walk.right)
        else:
            completion = await client.chat.completions.create(
                model=session.model,
                messages=cast(list[ChatCompletionMessageParam], transcript),
                tools=TOOLS,
                max_tokens=MAX_TOKENS,
            )
            answer = completion.choices[0].message.model_dump(exclude_none=True)
        words = walk.take(answer)
        if not helped:
            rewards[completion.id] = walk.rewards[-1]
        if words is not None:
            call = answer["tool_calls"][0]["id"]
            transcript += [answer, {"role": "tool", "tool_call_id": call, "content": words}]
    return {"reward": walk.reward, "turn_rewards": rewards}


def helping(key: int) -> dict[str, Any]:
    """Return the helper's call."""
    function = {"name": "lookup", "arguments": json.dumps({"key": key})}
    call = {"id": "helper", "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}
