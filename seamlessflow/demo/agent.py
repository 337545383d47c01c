"""The demo's agent: the unmodified `openai` client, a tool, and a reward at the end.

It knows nothing of training, tokens or Kafka; `producers/agents` runs it as
`seamlessflow.demo.agent:run`.
"""

from collections.abc import Mapping
from typing import Protocol, cast

import httpx2
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from seamlessflow.demo.task import LOOKUP, LookupTask, look_up, lookup_call, question, reward

MAX_TOKENS = 16
"""Most tokens of one answer; a right one has six."""

MAX_TURNS = 2

TOOLS = [cast(ChatCompletionFunctionToolParam, LOOKUP)]


class ModelEndpoint(Protocol):
    """What the agent needs of `producers.agents.harness.session.AgentSession`."""

    @property
    def base_url(self) -> str: ...

    @property
    def api_key(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def http_client(self) -> httpx2.AsyncClient: ...


async def run(task: LookupTask, session: ModelEndpoint) -> float:
    """Plays one episode and gives its reward.

    Whatever the model says ends in a reward: an answer out of form is worth 0. Errors of the
    endpoint are raised as the client's own, for they are not the model's fault.
    """
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    transcript: list[Mapping[str, object]] = [question(task)]
    for _ in range(MAX_TURNS):
        answer = await _answer(client, session.model, transcript)
        transcript.append(answer)
        told = _use_tool(task, answer)
        if told is None:
            break
        transcript.append(told)
    return reward(task, transcript)


async def _answer(
    client: AsyncOpenAI, model: str, transcript: list[Mapping[str, object]]
) -> Mapping[str, object]:
    completion = await client.chat.completions.create(
        model=model,
        messages=cast(list[ChatCompletionMessageParam], transcript),
        tools=TOOLS,
        max_tokens=MAX_TOKENS,
    )
    return completion.choices[0].message.model_dump(exclude_none=True)


def _use_tool(task: LookupTask, answer: Mapping[str, object]) -> Mapping[str, object] | None:
    """The tool's message; None where the answer is not just one call of it that makes sense."""
    arguments = lookup_call(answer)
    told = None if arguments is None else look_up(task, arguments)
    if told is None:
        return None
    calls = cast(list[Mapping[str, object]], answer["tool_calls"])
    return {"role": "tool", "tool_call_id": calls[0]["id"], "content": told}
