"""Answers of the OpenAI Responses dialect, checked with the official client's models."""

from collections.abc import Sequence
from typing import Any, get_args

import orjson
from openai.types.responses import Response, ResponseStreamEvent

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.producers.gateway.dialects.openai_responses.response import (
    ResponseEvents,
    completion,
)
from seamlessflow.schemas.records import ReplyFinished
from tests.builders.records.replies import answer

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "lookup", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
    {"type": "local_shell"},
    {
        "type": "namespace",
        "name": "team",
        "description": "d",
        "tools": [{"type": "function", "name": "spawn"}],
    },
    {"type": "web_search"},
]
MODELS = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(ResponseStreamEvent)[0])
}
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}
LOGPROBS = {"include": ["message.output_text.logprobs"]}


def request(**more: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "input": "x", "tools": TOOLS, **more}), 1)


def call(name: str, arguments: str, number: int = 0) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_t_{number}", "type": "function", "function": function}


def whole(answered: ReplyFinished, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(completion("t", 1, request(**more), [answered]))
    Response.model_validate(body)
    return body


def events(data: bytes) -> list[Any]:
    """Return the events, each checked with its model."""
    read = []
    for event in data.split(b"\n\n")[:-1]:
        if event.startswith(b":"):
            continue
        name, _, body = event.partition(b"\ndata: ")
        read.append(orjson.loads(body))
        assert name == b"event: " + read[-1]["type"].encode()
        MODELS[read[-1]["type"]].model_validate(read[-1])
    return read


def streamed(
    deltas: Sequence[dict[str, Any]], answered: ReplyFinished | None = None, **more: Any
) -> list[Any]:
    """Return the events of a stream of these deltas; check their numbers."""
    writer = ResponseEvents("t", 1, request(stream=True, **more))
    answered = answered or answer()
    data = writer.open(3) + b"".join(writer.delta(0, ChoiceDelta(orjson.dumps(d))) for d in deltas)
    read = events(data + writer.finish(0, answered) + writer.end([answered]))
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    return read
