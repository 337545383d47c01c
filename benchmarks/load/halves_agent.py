"""Agent that plays the demo's task with two modules: one asks the tool, the other one answers.

Each half is right or wrong by itself: `ask` is the right call of the tool, `answer` the code that
the tool returned for the key that was asked. `benchmarks/scheduling/halves.py` trains a policy for
each module.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from seamlessflow.demo.agent import MAX_TOKENS, TOOLS
from seamlessflow.demo.task import LookupTask, look_up, lookup_call, question
from seamlessflow.producers.agents.harness.session import AgentSession

ASK, ANSWER = "ask", "answer"
"""The modules, and the names of the rewards of their halves."""


async def run(task: LookupTask, session: AgentSession) -> Mapping[str, object]:
    """Play one session; return the reward of each half, and their mean as that of the session.

    A call in a wrong form gives 0 for both, since there is nothing to answer.
    """
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    transcript: list[Mapping[str, Any]] = [question(task)]
    asked = await _said(client, session.model, ASK, transcript)
    rewards = {ASK: 0.0, ANSWER: 0.0}
    arguments = lookup_call(asked)
    found = None if arguments is None else look_up(task, arguments)
    if found is not None:
        call = asked["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": call, "content": found}
        transcript += [asked, result]
        told = await _said(client, session.model, ANSWER, transcript)
        rewards[ASK] = float(json.loads(arguments or "") == {"key": task["key"]})
        rewards[ANSWER] = float(told.get("content") == found and not told.get("tool_calls"))
    return {"reward": sum(rewards.values()) / len(rewards), "rewards": rewards}


async def _said(
    client: AsyncOpenAI, model: str, module: str, transcript: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the answer of a module."""
    completion = await client.chat.completions.create(
        model=model,
        messages=cast(list[ChatCompletionMessageParam], transcript),
        tools=TOOLS,
        max_tokens=MAX_TOKENS,
        extra_headers={"x-seamlessflow-module": module},
    )
    return completion.choices[0].message.model_dump(exclude_none=True)
