"""Sampling parameters in OpenAI requests, and parameters that no engine here supports. Pure."""

from collections.abc import Mapping
from typing import Any

from seamlessflow.producers.gateway.dialects.canonical import ordered_json
from seamlessflow.producers.gateway.dialects.parameters import (
    INT32,
    INT64,
    ParameterCheck,
    flag,
    number,
    stops,
    unsupported,
    whole,
)
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.records import Sampling

_NOTHING_ASKED = Sampling()
_ANY_OBJECT = '{"type":"object"}'
_bias = number(-100, 100)


def sampling(request: Mapping[str, Any], **more: Any) -> Sampling:
    """Return the sampling parameters in `request`, and `more`. Raises `ApiError` (400)."""
    asked: dict[str, Any] = {}
    for name in request.keys() & _FIELDS.keys():
        field, check = _FIELDS[name]
        # If a client sends both, the newer name counts.
        if name != "max_tokens" or "max_completion_tokens" not in request:
            asked[field] = check(name, request[name])
    return Sampling(**asked, **more) if asked or more else _NOTHING_ASKED


def json_schema(name: str, wanted: object) -> str | None:
    """Return the JSON schema in a `response_format`, or None for plain text.

    Its members keep their order, since engines write an answer in that order. Raises `ApiError`
    that names the parameter `name`.
    """
    match wanted:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return _ANY_OBJECT
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return ordered_json(schema, name).decode()
        case {"type": "json_schema"}:
            where = f"{name}.json_schema.schema"
            raise bad(where, f"{where} must be an object")
    raise bad(name, f"{name} must be of type text, json_object or json_schema")


def _biases(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not all(_is_token(token) for token in value):
        raise bad(name, f"{name} must be an object whose names are token ids")
    return {token: float(_bias(f"{name}.{token}", bias)) for token, bias in value.items()}  # type: ignore[arg-type]


def _is_token(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= len(str(INT32))


def _top_k(name: str, value: Any) -> int:
    # Some engines write "all tokens" as -1, the record writes it as 0.
    return max(0, whole(-1, INT32)(name, value))


def _one_tool_call(name: str, value: Any) -> bool:
    return not flag(name, value)


_FIELDS: Mapping[str, tuple[str, ParameterCheck]] = {
    "max_tokens": ("max_tokens", whole(1, INT32)),
    "max_completion_tokens": ("max_tokens", whole(1, INT32)),
    "temperature": ("temperature", number(0, 2)),
    "top_p": ("top_p", number(0, 1)),
    "top_k": ("top_k", _top_k),
    "min_p": ("min_p", number(0, 1)),
    "presence_penalty": ("presence_penalty", number(-2, 2)),
    "frequency_penalty": ("frequency_penalty", number(-2, 2)),
    "repetition_penalty": ("repetition_penalty", number(0, 10)),
    "logit_bias": ("logit_bias", _biases),
    "min_tokens": ("min_tokens", whole(0, INT32)),
    "seed": ("seed", whole(-INT64, INT64)),
    "stop": ("stop", stops),
    "parallel_tool_calls": ("one_tool_call", _one_tool_call),
}
NOT_DONE: Mapping[str, ParameterCheck] = {
    "use_beam_search": unsupported(False),
    "length_penalty": unsupported(1),
    "ignore_eos": unsupported(False),
    "stop_token_ids": unsupported([]),
    "include_stop_str_in_output": unsupported(False),
    "skip_special_tokens": unsupported(True),
    "bad_words": unsupported([]),
    "allowed_token_ids": unsupported([]),
    "logits_processors": unsupported([]),
    "prompt_logprobs": unsupported(),
    "truncate_prompt_tokens": unsupported(),
    "guided_json": unsupported(),
    "guided_regex": unsupported(),
    "guided_choice": unsupported([]),
    "guided_grammar": unsupported(),
    "structured_outputs": unsupported(),
    "regex": unsupported(),
    "ebnf": unsupported(),
    "grammar": unsupported(),
}
"""Parameters that other servers accept in these protocols, and that would change the answer."""
