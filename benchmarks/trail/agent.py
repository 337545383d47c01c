"""Agent that plays `game.py` with the `openai` client: `agents.callable` of a run configuration.

Set it to `benchmarks.trail.agent:run`; `prepare.py` writes model and tasks.
"""

from collections.abc import Mapping
from typing import Any, cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.trail.game import TrailTask, Walk, question
from seamlessflow.demo.agent import MAX_TOKENS, TOOLS, ModelEndpoint


async def run(task: TrailTask, session: ModelEndpoint) -> Mapping[str, object]:
    """Play one session, from its beginning or from the middle, and return its rewards.

    They are the session's reward and its new turns' rewards. Raises the client's errors.
    """
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    walk = Walk(task)
    transcript: list[Any] = [*session.messages] or [question(task)]
    for message in transcript:
        if message["role"] == "assistant":
            walk.take(message)
    responses: list[str] = []
    while not walk.over:
        completion = await client.chat.completions.create(
            model=session.model,
            messages=cast(list[ChatCompletionMessageParam], transcript),
            tools=TOOLS,
            max_tokens=MAX_TOKENS,
        )
        responses.append(completion.id)
        answer: dict[str, Any] = completion.choices[0].message.model_dump(exclude_none=True)
        if (words := walk.take(answer)) is not None:
            call = answer["tool_calls"][0]["id"]
            transcript += [answer, {"role": "tool", "tool_call_id": call, "content": words}]
    new = walk.rewards[len(walk.rewards) - len(responses) :]
    turn_rewards = dict(zip(responses, new, strict=True))
    return {"reward": walk.reward, "turn_rewards": turn_rewards}
