"""Answers to learn, read back from their tokens as those of a policy are. Pure.

A text may spell control tokens: it then ends early, or a part of it becomes thinking or a call. It
would be learned as another answer than the one in the file, without a word. So it is compared.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.infra.rendering.completion import ParsedMessage
from seamlessflow.infra.rendering.renderer import Renderer

Message = Mapping[str, Any]


def check_read_back(
    place: int,
    message: Message,
    tools: Sequence[Message] | None,
    renderer: Renderer,
    prompt: bytes,
    answer: bytes,
) -> None:
    """Raise `ValueError` if the ids `answer` behind `prompt` are not read as the message.

    White space at the ends of texts does not count, nor how arguments are spelt.
    """
    calls = message.get("tool_calls") or ()
    # A line may have calls without tools; without any, a call would be read as text.
    offered = tools or [{"type": "function", "function": _named(call)} for call in calls] or None
    read = renderer.parse(answer, offered, renderer.tail(prompt))
    for part, written, learned in _parts(message, read):
        if written != learned:
            raise ValueError(
                f"message {place} would be learned otherwise: its {part} is {_shown(written)}, and "
                f"its tokens read {_shown(learned)}; leave out control tokens of the model, and "
                "what its template does not write"
            )


def _parts(message: Message, read: ParsedMessage) -> Sequence[tuple[str, object, object]]:
    """Return name, given value and read value of each part of an answer."""
    return (
        ("reasoning_content", _text(message, "reasoning_content"), (read.reasoning or "").strip()),
        ("content", _text(message, "content"), read.content.strip()),
        (
            "tool_calls",
            [
                (_named(call)["name"], _value(call["function"]["arguments"] or "{}"))
                for call in message.get("tool_calls") or ()
            ],
            [(call.name, _value(call.arguments)) for call in read.tool_calls],
        ),
        (
            "text",
            "no call",
            f"a malformed call ({read.malformed[0]})" if read.malformed else "no call",
        ),
    )


def _text(message: Message, member: str) -> str:
    return str(message.get(member) or "").strip()


def _named(call: Message) -> dict[str, str]:
    return {"name": call["function"]["name"]}


def _value(value: object) -> object:
    """Return a value with text that is JSON as its value: some formats write numbers as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return {name: _value(member) for name, member in value.items()}
    return [_value(member) for member in value] if isinstance(value, list) else value


def _shown(value: object) -> str:
    return f"{value!r:.120}"
