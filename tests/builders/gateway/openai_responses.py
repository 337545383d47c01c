"""Requests of the OpenAI Responses dialect and their canonical form."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.producers.gateway.errors import ApiError

USER = {"role": "user", "content": "hi"}
OUTPUT = {"type": "function_call_output", "call_id": "call_t_0", "output": "42"}


def parsed(**request: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "input": "hi", **request}), 4)


def refusal(**request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(**request)
    assert error.value.status == 400
    return error.value


def messages(*items: Any, **more: Any) -> list[Any]:
    return [orjson.loads(message) for message in parsed(input=list(items), **more).messages]


def call(turn: str = "t", number: int = 0, **more: Any) -> dict[str, Any]:
    call_id = f"call_{turn}_{number}"
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": "lookup",
        "arguments": "{}",
        **more,
    }


def functions(request: CanonicalRequest) -> list[Any]:
    return [tool["function"] for tool in orjson.loads(request.tools or b"[]")]
