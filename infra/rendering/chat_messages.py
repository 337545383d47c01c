"""OpenAI chat messages made ready for a text-only chat template. Pure; called by
`infra/rendering/chat_template.py` alone.

Templates drop in silence what they do not know (a `developer` message, an image in a text model),
so whatever cannot be rendered is refused here instead.
"""

from collections.abc import Mapping, Sequence

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class Unrenderable(ValueError):
    """A message that no text template can take; the text says which and why."""


def template_messages(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Messages with known roles, text content and tool calls in the one form templates expect.

    `arguments` stay the JSON text they are: a template that wants an object reads it, one that
    wants text gets the spelling that was sampled. System messages in a row are one, wherever they
    stand, so that a bridge's new messages read as in a rendering of all. Raises `Unrenderable`.
    """
    ready: list[dict[str, object]] = []
    for place, message in enumerate(messages):
        one = _message(place, message)
        if ready and _same_system(ready[-1], one):
            texts = (str(ready[-1]["content"]), str(one["content"]))
            ready[-1]["content"] = "\n\n".join(filter(None, texts))
        else:
            ready.append(one)
    return ready


def _same_system(before: Mapping[str, object], message: Mapping[str, object]) -> bool:
    """Many templates refuse a second system message, some show none but the first."""
    same_name = before.get("name") == message.get("name")
    return same_name and before["role"] == message["role"] == "system"


def _message(place: int, message: Mapping[str, object]) -> dict[str, object]:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise Unrenderable(f"message {place} has role {role!r}")
    ready: dict[str, object] = {
        "role": ROLES[role],
        "content": _text(place, message.get("content")),
    }
    for key in ("name", "tool_call_id", "reasoning_content"):
        if isinstance(message.get(key), str):
            ready[key] = message[key]
    if role == "assistant":
        _add_tool_calls(place, message, ready)
    return ready


def _text(place: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise Unrenderable(f"message {place} has content that is neither text nor parts")
    return "".join(_part(place, part) for part in content)


def _part(place: int, part: object) -> str:
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": kind}:
            raise Unrenderable(
                f"message {place} has a part of type {kind!r}; only text is rendered"
            )
    raise Unrenderable(f"message {place} has a part that is not an object with a type")


def _add_tool_calls(place: int, message: Mapping[str, object], ready: dict[str, object]) -> None:
    if message.get("function_call") is not None:
        raise Unrenderable(f"message {place} has function_call; use tool_calls")
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise Unrenderable(f"message {place} has tool_calls that are no list")
    if calls:
        ready["tool_calls"] = [_tool_call(place, call) for call in calls]


def _tool_call(place: int, call: object) -> dict[str, object]:
    match call:
        case {"function": {"name": str(name), "arguments": str(arguments)}, **rest}:
            function = {"name": name, "arguments": arguments or "{}"}
            return {"id": rest.get("id"), "type": "function", "function": function}
    raise Unrenderable(f"message {place} has a tool call without a name and arguments as JSON text")
