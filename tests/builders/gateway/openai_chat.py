"""Requests of the OpenAI chat dialect and their canonical form."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.openai_chat.request import parse
from seamlessflow.producers.gateway.errors import ApiError

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
CALL = {"id": "call_t_0", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}


def parsed(**request: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "messages": [USER], **request}), 4)


def refusal(body: bytes | None = None, **request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(**request) if body is None else parse(body, 4)
    assert error.value.status == 400
    return error.value


def message(value: dict[str, Any]) -> Any:
    return orjson.loads(parsed(messages=[value]).messages[0])
