"""A tool loop on the anthropic client: `anthropic_messages.py sync|async|stream`."""

import asyncio
import sys
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
TASK = {"role": "user", "content": "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."}
Messages = list[Any]


def request(messages: Messages) -> dict[str, Any]:
    return {
        "model": "policy",
        "max_tokens": 2000,
        "system": "You add with your tool.",
        "messages": messages,
        "tools": [ADD],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }


def results(message: Any) -> Messages:
    """Return the tools' results as the next message."""
    blocks = [
        {"type": "tool_result", "tool_use_id": block.id, "content": str(sum(block.input.values()))}
        for block in message.content
        if block.type == "tool_use"
    ]
    return [{"role": "user", "content": blocks}] if blocks else []


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def sync() -> str:
    client, messages = Anthropic(), [TASK]
    counted = client.messages.count_tokens(model="policy", messages=messages, tools=[ADD])
    assert counted.input_tokens > 0
    while True:
        answer = client.messages.create(**request(messages))
        messages.append({"role": "assistant", "content": answer.content})
        if not (tool_results := results(answer)):
            return text(answer)
        messages += tool_results


async def asynchronous() -> str:
    messages: Messages = [TASK]
    async with AsyncAnthropic() as client:
        while True:
            answer = await client.messages.create(**request(messages))
            messages.append(answer.to_dict())
            messages[-1] = {"role": "assistant", "content": messages[-1]["content"]}
            if not (tool_results := results(answer)):
                return text(answer)
            messages += tool_results


def stream() -> str:
    client, messages = Anthropic(), [TASK]
    while True:
        with client.messages.stream(**request(messages)) as events:
            for _ in events:
                pass
            answer = events.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        if not (tool_results := results(answer)):
            return text(answer)
        messages += tool_results


how = sys.argv[1]
print(asyncio.run(asynchronous()) if how == "async" else {"sync": sync, "stream": stream}[how]())
