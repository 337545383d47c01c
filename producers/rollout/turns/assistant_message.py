"""The assistant message as the JSON that records of `sessions` carry. Pure.

Canonical: sorted keys, absent members left out. Tool calls get public ids that contain the turn's.
"""

import orjson

from seamlessflow.infra.rendering.completion import MessageDelta, ParsedMessage
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.schemas.identity import tool_call_id


def message_json(message: ParsedMessage, turn_id: str) -> bytes:
    """Return the whole assistant message; `content` is null if there are only tool calls."""
    fields: dict[str, object] = {"role": "assistant", "content": message.content}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"type": "function", **_call(call, turn_id, number)}
            for number, call in enumerate(message.tool_calls)
        ]
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def delta_json(delta: MessageDelta, turn_id: str, first_call: int) -> bytes | None:
    """Return the addition to the message, or None if it is empty.

    `first_call` is the number of tool calls of the turn before it.
    """
    if not delta:
        return None
    fields: dict[str, object] = {}
    if delta.content:
        fields["content"] = delta.content
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    if delta.tool_calls:
        fields["tool_calls"] = [
            {"index": number, **_call(call, turn_id, number)}
            for number, call in enumerate(delta.tool_calls, first_call)
        ]
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _call(call: ToolCall, turn_id: str, number: int) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": tool_call_id(turn_id, number), "function": function}
