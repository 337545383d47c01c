"""A schema binds an answer as text: not a forced call, and not beside tools left to the model.

An error of a manager or worker names the parameter as the client wrote it.
"""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.refusals import (
    SCHEMA_PARAMETERS,
    blame,
    with_bound_schema,
)
from seamlessflow.producers.gateway.dialects import openai_completions
from seamlessflow.producers.gateway.dialects.anthropic_messages import request as messages_request
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.google_content import request as content_request
from seamlessflow.producers.gateway.dialects.openai_chat import request as chat_request
from seamlessflow.producers.gateway.dialects.openai_responses import request as responses_request
from seamlessflow.producers.gateway.errors import ApiError, refused
from seamlessflow.producers.gateway.routes import DIALECTS

Parse = Callable[[bytes, int], CanonicalRequest]
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
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
FORMAT = {"type": "json_schema", "name": "x", "schema": SCHEMA}
NO_SCHEMA = "this engine has no structured output: answers are plain text"


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


def blamed(
    parse: Parse, body: dict[str, Any], detail: str, reason: str = "unsupported_value"
) -> ApiError:
    error = refused(400, reason, detail)
    blame(error, parse(orjson.dumps(body), 1))
    return error


@pytest.mark.parametrize(
    ("asked", "detail", "param"),
    [
        ({"logit_bias": {"5": 1}}, "sampling by logit_bias is not supported", "logit_bias"),
        (
            {"seed": 1, "min_p": 0.5, "logit_bias": {"5": 1}},
            "sampling by min_p, logit_bias is not supported",
            "min_p",
        ),
        ({"seed": 0}, "this engine cannot draw by a seed", "seed"),
        ({"response_format": {"type": "json_object"}}, NO_SCHEMA, "response_format"),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            "the template does not read enable_thinking",
            "chat_template_kwargs",
        ),
        ({"seed": 5}, "the template knows no such role", None),
    ],
)
def test_what_a_worker_refuses_names_the_parameter(
    asked: dict[str, Any], detail: str, param: str | None
) -> None:
    assert blamed(chat_request.parse, {**HELLO, **asked}, detail).param == param


def test_a_schema_has_the_name_that_the_vendor_gives_it() -> None:
    response = {"model": "m", "input": "hi", "text": {"format": FORMAT}}
    assert blamed(responses_request.parse, response, NO_SCHEMA).param == "text.format"
    message = {**HELLO, "output_config": {"format": FORMAT}}
    assert blamed(messages_request.parse, message, NO_SCHEMA).param == "output_config.format"


def test_an_unknown_response_is_called_what_the_client_called_it() -> None:
    body = {"model": "m", "input": "hi", "previous_response_id": "resp_nope"}
    detail = "the session has no response 'nope' to go on from"
    error = blamed(responses_request.parse, body, detail, "previous_response_not_found")
    assert error.param == "previous_response_id"
    assert "'resp_nope'" in error.message


def test_a_token_that_is_none_was_in_the_prompt() -> None:
    body = {"model": "m", "prompt": [7, 9999]}
    detail = "token 9999 is outside the vocabulary of 300"
    assert blamed(openai_completions.parse, body, detail, "bad_request").param == "prompt"


@every_dialect
def test_tools_that_a_template_does_not_write_are_the_parameter_to_leave_out(path: str) -> None:
    for request in asked(path, "none"):
        detail = "tools cannot be used with the model's template: it does not write tools"
        error = refused(400, "bad_request", detail)
        blame(error, request)
        assert error.param == "tools"


def test_what_the_call_is_not_to_blame_for_names_nothing() -> None:
    error = refused(503, "no_worker", "no worker that may seed")
    blame(error, chat_request.parse(orjson.dumps({**HELLO, "seed": 5}), 1))
    assert error.param is None


def test_google_s_members_are_named_as_google_does() -> None:
    def parse(body: bytes, most: int) -> CanonicalRequest:
        return content_request.parse(body, most, "m", "whole")

    def asked(**config: Any) -> dict[str, Any]:
        return {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config}

    penalty = blamed(
        parse, asked(presencePenalty=1), "sampling by presence_penalty is not supported"
    )
    assert penalty.param == "generationConfig.presencePenalty"
    schema = blamed(parse, asked(responseMimeType="application/json"), NO_SCHEMA)
    assert schema.param == "generationConfig.responseSchema"
