"""Requests of the Anthropic messages dialect and their canonical form."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.anthropic_messages.request import parse
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError

USER = {"role": "user", "content": "hi"}
USE = {"type": "tool_use", "id": "call_t_0", "name": "lookup", "input": {"a": 1}}


def parsed(**request: Any) -> CanonicalRequest:
    whole = {"model": "m", "max_tokens": 9, "messages": [USER], **request}
    return parse(orjson.dumps({name: value for name, value in whole.items() if value != "-"}), 4)


def refusal(**request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(**request)
    assert error.value.status == 400
    return error.value


def messages(*sent: dict[str, Any], **more: Any) -> list[Any]:
    return [orjson.loads(message) for message in parsed(messages=list(sent), **more).messages]
