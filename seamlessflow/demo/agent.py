"""The demo's agents: the unmodified `openai` client, and a reward at the end.

They know nothing about training, tokens or Kafka. `producers/agents` runs one of them:
`seamlessflow.demo.agent:run`, which has a tool, `:calculate` with a real model, or `:ask_once` with
modelled devices.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import httpx2
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from seamlessflow.demo.sums import SumTask, dialogue, sum_reward
from seamlessflow.demo.task import LOOKUP, LookupTask, look_up, lookup_call, question, reward

MAX_TOKENS = 16
"""Most tokens in an answer; a right answer has six."""

MAX_SUM_TOKENS = 4
"""Most tokens in an answer to a sum: two digits and the turn's end are three."""

MAX_TURNS = 2

TOOLS = [cast(ChatCompletionFunctionToolParam, LOOKUP)]


class ModelEndpoint(Protocol):
    """Part of `seamlessflow.producers.agents.harness.session.AgentSession` that the agent needs."""

    @property
    def base_url(self) -> str: ...

    @property
    def api_key(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def http_client(self) -> httpx2.AsyncClient: ...

    @property
    def messages(self) -> Sequence[Mapping[str, object]]: ...


class NamedEndpoint(ModelEndpoint, Protocol):
    """The same endpoint, with its session's id."""

    @property
    def session_id(self) -> str: ...


async def run(task: LookupTask, session: ModelEndpoint) -> float:
    """Play one episode, from its beginning or from the middle, and return its reward.

    An answer in a wrong form ends the episode with a reward of 0. Raises the client's errors: if
    the endpoint fails, that is not the model's fault.
    """
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    transcript: list[Mapping[str, object]] = [*session.messages] or [question(task)]
    for _ in range(_turns_left(transcript)):
        answer = await _answer(client, session.model, transcript)
        transcript.append(answer)
        result = _use_tool(task, answer)
        if result is None:
            break
        transcript.append(result)
    return reward(task, transcript)


async def calculate(task: SumTask, session: ModelEndpoint) -> float:
    """Ask for the answer to a sum and return its reward. Raises the client's errors."""
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    completion = await client.chat.completions.create(
        model=session.model, messages=dialogue(task), max_tokens=MAX_SUM_TOKENS
    )
    return sum_reward(task, completion.choices[0].message.content or "")


async def ask_once(task: LookupTask, session: NamedEndpoint) -> float:
    """Ask once and return a reward drawn at random, since modelled devices answer with any text.

    Raises the client's errors.
    """
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    messages = cast(list[ChatCompletionMessageParam], [question(task)])
    await client.chat.completions.create(model=session.model, messages=messages)
    draw = random.Random(session.session_id)  # nosec B311 # repeatable draws
    return float(draw.random() < 0.5)


def _turns_left(transcript: Sequence[Mapping[str, object]]) -> int:
    """Return how many answers may follow: two for the question, one for each further message."""
    roles = [message["role"] for message in transcript]
    return MAX_TURNS + roles.count("user") - 1 - roles.count("assistant")


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
    """Return the tool's message, or None if the answer is not exactly one valid call of it."""
    arguments = lookup_call(answer)
    value = None if arguments is None else look_up(task, arguments)
    if value is None:
        return None
    calls = cast(list[Mapping[str, object]], answer["tool_calls"])
    return {"role": "tool", "tool_call_id": calls[0]["id"], "content": value}
