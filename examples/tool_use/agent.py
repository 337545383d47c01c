"""An agent with a tool: the model has to call `lookup`, then say what it returned."""

import json

from openai import AsyncOpenAI

LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"key": {"type": "integer"}}},
    },
}


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    # A session that was forked begins in the middle.
    messages = [*session.messages] or [{"role": "user", "content": f"key {task['key']}"}]
    for _ in range(2):
        answer = await client.chat.completions.create(
            model=session.model, messages=messages, tools=[LOOKUP], max_tokens=16
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        messages += [result(task, call) for call in message.tool_calls]
    code = str(task["table"][task["key"]])
    called = any(message["role"] == "tool" for message in messages)
    return 1.0 if called and code in (messages[-1].get("content") or "") else 0.0


def result(task, call):
    """Return the tool's message. What the model writes may be anything."""
    try:
        content = f"code {task['table'][json.loads(call.function.arguments)['key']]}"
    except (ValueError, KeyError, IndexError, TypeError):
        content = "no such key"
    return {"role": "tool", "tool_call_id": call.id, "content": content}
