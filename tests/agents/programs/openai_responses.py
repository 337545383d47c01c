"""A tool loop on the openai client, responses: `openai_responses.py sync|async|stream|previous`."""

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI, OpenAI

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
TASK = {"role": "user", "content": "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."}
Items = list[Any]


def request(items: Items) -> dict[str, Any]:
    return {
        "model": "policy",
        "input": items,
        "tools": [ADD],
        "max_output_tokens": 1000,
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
    }


def results(response: Any) -> Items:
    """Return the tools' results."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": str(sum(json.loads(item.arguments).values())),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def sync() -> str:
    client, items = OpenAI(), [TASK]
    while True:
        response = client.responses.create(**request(items), store=False)
        items += response.output
        if not (tool_results := results(response)):
            return response.output_text
        items += tool_results


async def asynchronous() -> str:
    items: Items = [TASK]
    async with AsyncOpenAI() as client:
        while True:
            response = await client.responses.create(**request(items), store=False)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            if not (tool_results := results(response)):
                return response.output_text
            items += tool_results


def stream() -> str:
    client, items = OpenAI(), [TASK]
    while True:
        with client.responses.stream(**request(items), store=False) as events:
            for _ in events:
                pass
            response = events.get_final_response()
        items += response.output
        if not (tool_results := results(response)):
            return response.output_text
        items += tool_results


def previous() -> str:
    """Run the loop with only the new items and `previous_response_id`."""
    client = OpenAI()
    response = client.responses.create(**request([TASK]))
    while tool_results := results(response):
        response = client.responses.create(
            **request(tool_results), previous_response_id=response.id
        )
    return response.output_text


how = sys.argv[1]
ways = {"sync": sync, "stream": stream, "previous": previous}
print(asyncio.run(asynchronous()) if how == "async" else ways[how]())
