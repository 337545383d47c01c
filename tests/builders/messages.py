"""A conversation with a tool, as a renderer reads it."""

from collections.abc import Mapping

TOOLS = [
    {
        "type": "function",
        "function": {"name": "act", "parameters": {"type": "object", "properties": {}}},
    }
]


ASKED = {"role": "user", "content": "one"}


TOLD = {"role": "tool", "tool_call_id": "c", "content": "four"}


Message = Mapping[str, object]


def called(arguments: str) -> Message:
    function = {"name": "act", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
