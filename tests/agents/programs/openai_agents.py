"""An agent with a tool on openai-agents: `openai_agents.py chat|responses run|stream`."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI

TASK = "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main(api: str, how: str) -> None:
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    agent = Agent(
        name="Adder",
        instructions="You add with your tool.",
        tools=[add],
        model=kind(model="policy", openai_client=AsyncOpenAI()),
    )
    if how == "run":
        print((await Runner.run(agent, TASK)).final_output)
        return
    streamed = Runner.run_streamed(agent, TASK)
    async for _ in streamed.stream_events():
        pass
    print(streamed.final_output)


asyncio.run(main(*sys.argv[1:]))
