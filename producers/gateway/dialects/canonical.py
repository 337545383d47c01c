"""A call's canonical form, the same for all dialects. Pure.

A dialect makes a `CanonicalRequest` from an HTTP body, and `turns.py` makes commands from it. Its
JSON is canonical: keys are sorted and absent members are left out. Tools and answer schemas are an
exception. They keep their members in the agent's order, because chat templates and engines write
them in that order.

A tool call's arguments are JSON text, but some dialects have an object there. A model may sample
text that is not a JSON object. Such text is sent to the agent as `{"$arguments": text}`, so that
the agent sends back exactly what was sampled.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import xxhash

from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.json_text import write_json
from seamlessflow.schemas.records import Sampling

_TEXT = "$arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalRequest:
    """One call, which asks for `choices` samples of one turn.

    `raw`: no chat template is applied, and the only message is `{"role": "raw", "content": text}`
    or `{"role": "raw", "ids": [...]}`. `previous_turn`, `own_messages`: as in `RequestTurn`.
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
    wants_token_ids: bool = False
    raw: bool = False
    previous_turn: str | None = None
    own_messages: int = 0
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """Values that the dialect needs again to write the answer, under the dialect's own names."""

    def body_hashes(self) -> list[bytes]:
        """Return an xxh3-128 hash for each choice, over everything that decides its answer.

        A client's retry has the same hashes.
        """
        absent = b"null"
        parts = (
            orjson.dumps((self.dialect, self.model, self.tool_choice, self.choices, self.sampling)),
            self.tools or absent,
            self.template_args or absent,
            (self.previous_turn or "").encode(),
            *self.messages,
        )
        # JSON has no zero bytes, so different parts never join to the same bytes.
        decisive = b"\0".join(parts)
        return [xxhash.xxh3_128_digest(decisive, seed=choice) for choice in range(self.choices)]


class Prompt(NamedTuple):
    """The messages and tools that the model reads, for counting their tokens."""

    messages: tuple[bytes, ...]
    tools: bytes | None


def canonical_json(value: object, param: str) -> bytes:
    """Return JSON with sorted keys. Raises `ApiError` (400, names `param`) if it is too deep."""
    return _json(value, param, sort_keys=True)


def ordered_json(value: object, param: str) -> bytes:
    """Return JSON with its members in their order. Raises `ApiError` (400) that names `param`."""
    return _json(value, param, sort_keys=False)


def functions_json(functions: Sequence[Mapping[str, object]]) -> bytes | None:
    """Return functions as tools in one JSON array, or None without any. Raises `ApiError`."""
    listed = [{"type": "function", "function": function} for function in functions]
    return ordered_json(listed, "tools") if listed else None


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a call in canonical form."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def call_input(arguments: str) -> bytes:
    """Return a call's arguments as a JSON object, written as they were sampled."""
    arguments = arguments or "{}"
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:  # also for JSON that many parsers refuse: 1e999, "\ud800"
        value = None
    if not isinstance(value, dict) or _is_wrapped_text(value):
        return orjson.dumps({_TEXT: arguments})
    return arguments.encode()


def call_arguments(place: str, value: object) -> str:
    """Return a call's input as argument text, spaced as most models write it. Raises `ApiError`."""
    if not isinstance(value, dict):
        raise bad(place, f"{place} must be an object")
    if _is_wrapped_text(value):
        return str(value[_TEXT])
    try:
        # json writes a space after each comma and colon, as most models do; orjson does not.
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise bad(place, f"{place} is nested too deeply") from error


def _json(value: object, param: str, *, sort_keys: bool) -> bytes:
    try:
        return write_json(value, sort_keys=sort_keys)
    except TypeError as error:
        raise bad(param, f"{param} cannot be stored: {error}") from error


def _is_wrapped_text(value: Mapping[str, object]) -> bool:
    return len(value) == 1 and isinstance(value.get(_TEXT), str)
