"""A schema binds an answer as text: not a forced call, and not beside tools left to the model."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.schemas_and_tools import (
    SCHEMA_PARAMETERS,
    with_bound_schema,
)
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS

SCHEMA = {"type": "object"}
PARAMETERS = {"name": "f", "parameters": SCHEMA}
USER = {"role": "user", "content": "hi"}
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [USER],
        "tools": [{"type": "function", "function": PARAMETERS}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    },
    "/v1/responses": {
        "input": "hi",
        "tools": [{"type": "function", **PARAMETERS}],
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [USER],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "/v1beta/models/*:generateContent": {
        "contents": CONTENTS,
        "tools": [{"functionDeclarations": [PARAMETERS]}],
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        },
    },
}


def google(mode: str) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": {"mode": mode}}}


def openai(choice: object) -> dict[str, Any]:
    return {"tool_choice": choice}


CHOICES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "/v1/chat/completions": {
        "auto": [{}, openai("auto")],
        "none": [openai("none")],
        "forced": [
            openai("required"),
            openai({"type": "function", "function": {"name": "f"}}),
        ],
    },
    "/v1/responses": {
        "auto": [{}, openai("auto")],
        "none": [openai("none")],
        "forced": [openai("required"), openai({"type": "function", "name": "f"})],
    },
    "/v1/messages": {
        "auto": [{}, openai({"type": "auto"})],
        "none": [openai({"type": "none"})],
        "forced": [openai({"type": "any"}), openai({"type": "tool", "name": "f"})],
    },
    "/v1beta/models/*:generateContent": {
        "auto": [{}, google("AUTO")],
        "none": [google("NONE")],
        "forced": [google("ANY")],
    },
}


def asked(path: str, kind: str) -> list[CanonicalRequest]:
    """Return requests of a dialect with a schema, tools and this choice among them."""
    bodies = [{"model": "m", **BODIES[path], **choice} for choice in CHOICES[path][kind]]
    return [DIALECTS[path].parse(orjson.dumps(body), 1) for body in bodies]


every_dialect = pytest.mark.parametrize("path", list(BODIES))


@every_dialect
def test_a_forced_call_goes_without_the_schema(path: str) -> None:
    for request in asked(path, "forced"):
        assert request.sampling.json_schema is not None
        assert with_bound_schema(request).sampling.json_schema is None


@every_dialect
def test_a_schema_binds_where_the_model_may_call_no_tool(path: str) -> None:
    for request in asked(path, "none"):
        assert with_bound_schema(request).sampling.json_schema is not None
    without_tools = {name: value for name, value in BODIES[path].items() if name != "tools"}
    alone = DIALECTS[path].parse(orjson.dumps({"model": "m", **without_tools}), 1)
    assert with_bound_schema(alone) is alone


@every_dialect
def test_a_schema_beside_tools_that_the_model_may_call_is_refused(path: str) -> None:
    for request in asked(path, "auto"):
        with pytest.raises(ApiError) as error:
            with_bound_schema(request)
        assert (error.value.status, error.value.code) == (400, "unsupported_value")
        assert error.value.param == SCHEMA_PARAMETERS[request.dialect]
        assert "force a call" in error.value.message


@every_dialect
def test_tools_without_a_schema_are_left_to_the_model(path: str) -> None:
    names = ("response_format", "text", "output_config", "generationConfig")
    body = {name: value for name, value in BODIES[path].items() if name not in names}
    request = DIALECTS[path].parse(orjson.dumps({"model": "m", **body}), 1)
    assert with_bound_schema(request) is request
