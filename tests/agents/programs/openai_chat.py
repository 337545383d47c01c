"""A tool loop on the openai client, chat completions: `openai_chat.py sync|async|stream`."""

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI, OpenAI

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
TASK = "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."
Messages = list[Any]


def tool_messages(calls: list[Any]) -> Messages:
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": str(sum(json.loads(call.function.arguments).values())),
        }
        for call in calls
    ]


def request(messages: Messages) -> dict[str, Any]:
    return {"model": "policy", "messages": messages, "tools": [ADD], "max_tokens": 1000}


def sync() -> str:
    client, messages = OpenAI(), [{"role": "user", "content": TASK}]
    while True:
        answer = client.chat.completions.create(**request(messages)).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content or ""
        messages += tool_messages(answer.tool_calls)


async def asynchronous() -> str:
    messages: Messages = [{"role": "user", "content": TASK}]
    async with AsyncOpenAI() as client:
        while True:
            answer = (await client.chat.completions.create(**request(messages))).choices[0].message
            messages.append(answer)
            if not answer.tool_calls:
                return answer.content or ""
            messages += tool_messages(answer.tool_calls)


def stream() -> str:
    client, messages = OpenAI(), [{"role": "user", "content": TASK}]
    while True:
        with client.chat.completions.stream(**request(messages)) as events:
            for _ in events:
                pass
            answer = events.get_final_completion().choices[0].message
        messages.append(answer.to_dict())
        if not answer.tool_calls:
            return answer.content or ""
        messages += tool_messages(answer.tool_calls)


how = sys.argv[1]
print(asyncio.run(asynchronous()) if how == "async" else {"sync": sync, "stream": stream}[how]())
