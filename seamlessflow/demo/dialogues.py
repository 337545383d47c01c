"""Episodes of the demo's task as a demonstrator plays them, to train tokenizer and warm-up."""

import json
from collections.abc import Mapping

from seamlessflow.demo.task import LookupTask, look_up, question

Message = Mapping[str, object]


def call_text(key: int) -> str:
    """Return the first answer, as Qwen3 writes a tool call."""
    return f'<tool_call>\n{{"name": "lookup", "arguments": {arguments(key)}}}\n</tool_call>'


def arguments(key: int) -> str:
    return json.dumps({"key": key})


def answer_text(code: int) -> str:
    """Return the last answer."""
    return f"code {code}"


def tool_message(task: LookupTask, key: int) -> Message:
    return {
        "role": "tool",
        "tool_call_id": "call_0",
        "content": look_up(task, arguments(key)) or "",
    }


def dialogue(task: LookupTask) -> list[Message]:
    """Return the messages of a perfect episode."""
    key = task["key"]
    call = {"name": "lookup", "arguments": arguments(key)}
    return [
        question(task),
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
        },
        tool_message(task, key),
        {"role": "assistant", "content": answer_text(task["table"][key])},
    ]
