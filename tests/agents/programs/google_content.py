"""A tool loop on the google-genai client: `google_content.py sync|async|stream`."""

import asyncio
import sys
from typing import Any

from google import genai
from google.genai import types

ADD = types.FunctionDeclaration(
    name="add",
    description="Adds two numbers.",
    parameters_json_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
CONFIG = types.GenerateContentConfig(
    system_instruction="You add with your tool.",
    tools=[types.Tool(function_declarations=[ADD])],
    max_output_tokens=2000,
)
TASK = "[script adding] What is 5 + 4, and what 1 + 1? Use your tool."


def results(parts: list[Any]) -> list[Any]:
    """Return the functions' responses as the parts of the next message."""
    calls = [part.function_call for part in parts if part.function_call]
    return [
        types.Part.from_function_response(
            name=call.name, response={"output": str(sum(call.args.values()))}
        )
        for call in calls
    ]


def text(parts: list[Any]) -> str:
    return "".join(part.text or "" for part in parts if not part.thought)


def sync() -> str:
    client = genai.Client()
    counted = client.models.count_tokens(model="policy", contents=TASK)
    assert counted.total_tokens and counted.total_tokens > 0
    chat = client.chats.create(model="policy", config=CONFIG)
    parts = chat.send_message(TASK).parts
    while tool_results := results(parts):
        parts = chat.send_message(tool_results).parts
    return text(parts)


async def asynchronous() -> str:
    async with genai.Client().aio as client:
        chat = client.chats.create(model="policy", config=CONFIG)
        parts = (await chat.send_message(TASK)).parts
        while tool_results := results(parts):
            parts = (await chat.send_message(tool_results)).parts
        return text(parts)


def stream() -> str:
    client = genai.Client()  # It closes its connections once nothing refers to it.
    chat = client.chats.create(model="policy", config=CONFIG)
    message: Any = TASK
    while message:
        events = chat.send_message_stream(message)
        parts = [part for event in events for part in event.parts or ()]
        message = results(parts)
    return text(parts)


how = sys.argv[1]
print(asyncio.run(asynchronous()) if how == "async" else {"sync": sync, "stream": stream}[how]())
