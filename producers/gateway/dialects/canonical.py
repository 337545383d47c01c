"""What an agent asks for, whatever dialect it speaks. Pure.

A dialect makes a `CanonicalRequest` of an HTTP body; `turns.py` makes commands of it. JSON in it is
canonical (sorted keys, absent members left out), but for tools and schemas of answers, which keep
the order in which the agent wrote their members: templates and engines write them in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import xxhash

from producers.gateway.errors import bad
from schemas.records import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalRequest:
    """One call: `choices` samples of one turn.

    `raw`: the one message is `{"role": "raw", "content": text}` or `{"role": "raw", "ids": [...]}`
    and stands without a chat template. `previous_turn`, `own_messages`: as in `RequestTurn`.
    """

    dialect: str
    model: str
    messages: tuple[bytes, ...]
    tools: bytes | None
    template_args: bytes | None
    sampling: Sampling
    tool_choice: str
    choices: int
    stream: bool
    include_usage: bool
    wants_logprobs: bool
    raw: bool = False
    previous_turn: str | None = None
    own_messages: int = 0
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """Members of the request that the dialect's answer repeats."""

    def body_hashes(self) -> list[bytes]:
        """For each choice xxh3-128 of what decides its answer; equal for a client's retry."""
        absent = b"null"
        parts = (
            orjson.dumps((self.dialect, self.model, self.tool_choice, self.choices, self.sampling)),
            self.tools or absent,
            self.template_args or absent,
            (self.previous_turn or "").encode(),
            *self.messages,
        )
        asked = b"\0".join(parts)
        return [xxhash.xxh3_128_digest(asked, seed=choice) for choice in range(self.choices)]


def canonical_json(value: object, param: str) -> bytes:
    """Sorted-key JSON. Raises `ApiError` naming `param` when it is nested too deeply."""
    return _json(value, param, orjson.OPT_SORT_KEYS)


def ordered_json(value: object, param: str) -> bytes:
    """JSON with members in the order they have. Raises `ApiError` naming `param`."""
    return _json(value, param, 0)


def _json(value: object, param: str, option: int) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:
        raise bad(param, f"{param} cannot be stored: {error}") from error
