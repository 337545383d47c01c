"""Integers beyond 64 bits keep their digits through every dialect, in what agents send and get."""

from copy import deepcopy
from typing import Any

import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.routes import DIALECTS
from seamlessflow.schemas.json_text import write_json
from tests.builders.gateway.bodies import BODIES
from tests.builders.records import replies

WIDE = (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 123456789012345678901234567890)
every_width = pytest.mark.parametrize("number", WIDE)


def read(path: str, body: dict[str, Any]) -> CanonicalRequest:
    return DIALECTS[path].parse(write_json(body), 4)


def with_schemas(value: Any, number: int) -> Any:
    """Return a body in which each schema of an object has a member with the number."""
    if isinstance(value, list):
        return [with_schemas(member, number) for member in value]
    if not isinstance(value, dict):
        return value
    read = {name: with_schemas(member, number) for name, member in value.items()}
    return read | {"x-most": number} if isinstance(read.get("properties"), dict) else read


@every_width
@pytest.mark.parametrize("path", [path for path in BODIES if "tools" in BODIES[path]])
def test_schemas_keep_every_digit(path: str, number: int) -> None:
    body = with_schemas(deepcopy(BODIES[path]), number)
    request = read(path, body)
    digits = b'"x-most":%d' % number
    assert digits in (request.tools or b"")
    assert request.sampling.json_schema is None or digits.decode() in request.sampling.json_schema


@every_width
def test_a_response_repeats_tools_with_every_digit(number: int) -> None:
    path = "/v1/responses"
    request = read(path, with_schemas(deepcopy(BODIES[path]), number))
    answer = [replies.answer()]
    events = DIALECTS[path].events("t", 1, request)
    digits = b'"x-most":%d' % number
    assert digits in DIALECTS[path].completion("t", 1, request, answer)
    assert digits in events.open(1)


@every_width
def test_the_input_of_a_call_keeps_every_digit(number: int) -> None:
    message: dict[str, Any] = deepcopy(BODIES["/v1/messages"])
    message["messages"][1]["content"][1]["input"] = {"a": [number]}
    content: dict[str, Any] = deepcopy(BODIES["/v1beta/models/*:generateContent"])
    content["contents"][1]["parts"][2]["functionCall"]["args"] = {"a": [number]}
    for path, body in (("/v1/messages", message), ("/v1beta/models/*:generateContent", content)):
        called = b"".join(read(path, body).messages)
        assert b'{\\"a\\": [%d]}' % number in called


@every_width
def test_the_result_of_a_function_keeps_every_digit(number: int) -> None:
    path = "/v1beta/models/*:generateContent"
    body: dict[str, Any] = deepcopy(BODIES[path])
    body["contents"][2]["parts"][0]["functionResponse"]["response"] = {"sum": number}
    assert b'{\\"sum\\":%d}' % number in b"".join(read(path, body).messages)


@every_width
def test_a_sampled_call_reaches_its_agent_and_comes_back_with_every_digit(number: int) -> None:
    arguments = f'{{"a": {number}}}'
    call = {"id": "call_t_0", "type": "function"}
    call_of = {**call, "function": {"name": "lookup", "arguments": arguments}}
    answer = [replies.answer(None, message={"tool_calls": [call_of]})]
    for path in ("/v1/messages", "/v1beta/models/*:generateContent"):
        written = DIALECTS[path].completion("t", 1, read(path, BODIES[path]), answer)
        assert arguments.encode() in written
