"""Builders of replies to a gateway `g` about a turn `t` of a session `s`; see `builder`."""

from typing import Any

import orjson

from seamlessflow.schemas.records import CommandAnswered, ReplyDelta, ReplyFinished, TokenTensor
from tests.builders.records.builder import builder

answered = builder(CommandAnswered(gateway="g", session_id="s", command_id="c"), "command_id")
finished = builder(ReplyFinished(gateway="g", session_id="s", turn_id="t"))
tensor = builder(TokenTensor(name="", from_token=0, to_token=1, dtype="int32"), "name")


def delta(offset: int = 0, text: str | None = None, **changes: Any) -> ReplyDelta:
    """Return a piece of a streamed answer in which each character is a token."""
    part = None if text is None else orjson.dumps({"content": text})
    fields: dict[str, Any] = {"token_count": len(text or ""), "delta": part, **changes}
    return ReplyDelta(
        **{"gateway": "g", "session_id": "s", "turn_id": "t", **fields}, token_offset=offset
    )


def answer(content: str | None = "hi", **changes: Any) -> ReplyFinished:
    """Return a whole answer. A mapping as `message` adds to the assistant message."""
    message = changes.pop("message", {})
    if isinstance(message, dict):
        message = orjson.dumps({"content": content, "role": "assistant", **message})
    fields = {"finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 2, **changes}
    return finished(message=message, **fields)
