from collections.abc import Callable
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.blame import blame
from seamlessflow.producers.gateway.dialects import openai_completions
from seamlessflow.producers.gateway.dialects.anthropic_messages import request as messages_request
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.google_content import request as content_request
from seamlessflow.producers.gateway.dialects.openai_chat import request as chat_request
from seamlessflow.producers.gateway.dialects.openai_responses import request as responses_request
from seamlessflow.producers.gateway.errors import ApiError, refused

Parse = Callable[[bytes, int], CanonicalRequest]
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
SCHEMA = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
NO_SCHEMA = "this engine has no structured output: answers are plain text"


def told(
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
        ({"seed": 5}, "the template knows no such role", None),
    ],
)
def test_what_a_worker_refuses_names_the_parameter(
    asked: dict[str, Any], detail: str, param: str | None
) -> None:
    assert told(chat_request.parse, {**HELLO, **asked}, detail).param == param


def test_a_schema_has_the_name_that_the_vendor_gives_it() -> None:
    response = {"model": "m", "input": "hi", "text": {"format": SCHEMA}}
    assert told(responses_request.parse, response, NO_SCHEMA).param == "text.format"
    message = {**HELLO, "output_config": {"format": SCHEMA}}
    assert told(messages_request.parse, message, NO_SCHEMA).param == "output_config.format"


def test_an_unknown_response_is_called_what_the_client_called_it() -> None:
    body = {"model": "m", "input": "hi", "previous_response_id": "resp_nope"}
    detail = "the session has no response 'nope' to go on from"
    error = told(responses_request.parse, body, detail, "previous_response_not_found")
    assert error.param == "previous_response_id"
    assert "'resp_nope'" in error.message


def test_a_token_that_is_none_was_in_the_prompt() -> None:
    body = {"model": "m", "prompt": [7, 9999]}
    detail = "token 9999 is outside the vocabulary of 300"
    assert told(openai_completions.parse, body, detail, "bad_request").param == "prompt"


def test_what_the_call_is_not_to_blame_for_names_nothing() -> None:
    error = refused(503, "no_worker", "no worker that may seed")
    blame(error, chat_request.parse(orjson.dumps({**HELLO, "seed": 5}), 1))
    assert error.param is None


def test_google_s_members_are_named_as_google_does() -> None:
    def parse(body: bytes, most: int) -> CanonicalRequest:
        return content_request.parse(body, most, "m", "whole")

    def asked(**config: Any) -> dict[str, Any]:
        return {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config}

    penalty = told(parse, asked(presencePenalty=1), "sampling by presence_penalty is not supported")
    assert penalty.param == "generationConfig.presencePenalty"
    schema = told(parse, asked(responseMimeType="application/json"), NO_SCHEMA)
    assert schema.param == "generationConfig.responseSchema"
