"""An agent with a tool on pydantic-ai: `pydantic_agent.py chat|responses|messages run|stream`."""

import asyncio
import sys
from collections.abc import AsyncIterable

from pydantic_ai import Agent, AgentStreamEvent, RunContext
from pydantic_ai.models import Model

TASK = "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."


def model(api: str) -> Model:
    if api == "messages":
        from pydantic_ai.models.anthropic import AnthropicModel

        return AnthropicModel("policy")
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

    return OpenAIResponsesModel("policy") if api == "responses" else OpenAIChatModel("policy")


async def main(api: str, how: str) -> None:
    agent = Agent(model(api), instructions="You add with your tool.")

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    # A handler of events makes it ask for streams; `run_stream` ends at the first text.
    result = await agent.run(TASK, event_stream_handler=listen if how == "stream" else None)
    print(result.output)


async def listen(_: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for _ in events:
        pass


asyncio.run(main(*sys.argv[1:]))
