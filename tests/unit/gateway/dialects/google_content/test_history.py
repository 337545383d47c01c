"""Contents of Google requests as canonical messages."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.google_content.members import signature
from seamlessflow.producers.gateway.dialects.google_content.request import parse
from seamlessflow.producers.gateway.errors import ApiError

USER: Any = {"role": "user", "parts": [{"text": "hi"}]}
CALL: Any = {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}
MODEL: Any = {"role": "model", "parts": [CALL]}


def messages(*contents: Any, **more: Any) -> list[Any]:
    body = orjson.dumps({"contents": list(contents), **more})
    return [orjson.loads(message) for message in parse(body, 1, "m", "whole").messages]


def refusal(contents: list[Any]) -> str | None:
    """Return the member that a refusal names."""
    with pytest.raises(ApiError) as error:
        messages(*contents)
    assert error.value.status == 400
    return error.value.param


def responded(name: str = "f", response: Any = None, **more: Any) -> dict[str, Any]:
    answer = {"name": name, "response": {"output": "42"} if response is None else response}
    return {"role": "user", "parts": [{"functionResponse": {**answer, **more}}]}


def test_contents_become_messages() -> None:
    instruction = {"parts": [{"text": "be"}, {"text": "kind"}]}
    assert messages({"parts": [{"text": "a"}, {"text": "b"}]}, systemInstruction=instruction) == [
        {"role": "system", "content": "be\nkind"},
        {"role": "user", "content": "a\nb"},
    ]


def test_contents_of_one_role_are_one_message() -> None:
    pieces = [{"role": "model", "parts": [{"text": text}]} for text in ("he", "llo")]
    assert messages(USER, *pieces, USER)[1] == {"role": "assistant", "content": "hello"}


def test_a_response_without_an_id_answers_the_next_call_of_its_name() -> None:
    calls = [{"functionCall": {"name": name}} for name in ("f", "g", "f")]
    said = messages(
        USER,
        {"role": "model", "parts": calls},
        responded("g", {"output": "1"}),
        responded("f", {"output": "2"}),
        responded("f", {"output": "3"}),
    )
    ids = [call["id"] for call in said[1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [(message["tool_call_id"], message["content"]) for message in said[2:]] == [
        (ids[0], "2"),
        (ids[1], "1"),
        (ids[2], "3"),
    ]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": "42"}, "42"),
        ({"output": [1, 2]}, "[1,2]"),
        ({"error": "no"}, "Error: no"),
        ({"result": 3}, '{"result":3}'),
        ({"output": 1, "more": 2}, '{"output":1,"more":2}'),
        ({}, "{}"),
    ],
)
def test_a_response_is_shown_as_its_output(response: Any, text: str) -> None:
    assert messages(USER, MODEL, responded(response=response))[2]["content"] == text


@pytest.mark.parametrize(
    ("contents", "param"),
    [
        ([], "contents"),
        ([MODEL], "contents"),
        ([{"role": "system", "parts": [{"text": "x"}]}], "contents[0].role"),
        ([{"role": "user", "parts": []}], "contents[0].parts"),
        ([{"parts": [{}]}], "contents[0].parts[0]"),
        ([{"parts": [{"text": "a", "functionCall": {"name": "f"}}]}], "contents[0].parts[0]"),
        (
            [{"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}],
            "contents[0].parts[0].inlineData",
        ),
        ([{"parts": [{"file_data": {"fileUri": "x"}}]}], "contents[0].parts[0].fileData"),
        ([{"parts": [CALL]}], "contents[0].parts[0].functionCall"),
        ([{"parts": [{"text": "x", "thought": True}]}], "contents[0].parts[0].thought"),
        ([USER, MODEL, responded("g")], "contents[2].parts[0].functionResponse.name"),
        ([USER, MODEL, responded(id="c2")], "contents[2].parts[0].functionResponse.id"),
        ([responded(id="c1")], "contents[0].parts[0].functionResponse.id"),
        (
            [USER, MODEL, responded(parts=[{"inlineData": {}}])],
            "contents[2].parts[0].functionResponse.parts",
        ),
    ],
)
def test_contents_that_a_text_model_cannot_read_are_refused(
    contents: list[Any], param: str
) -> None:
    assert refusal(contents) == param


def test_a_thought_is_read_from_its_signature_or_else_from_its_part() -> None:
    shown = {"text": "hm", "thought": True}
    said = {"text": "so", "thoughtSignature": signature("hmm")}
    other = {"text": "so", "thoughtSignature": "AAAA"}
    for parts, thought in (
        ([shown, said], "hmm"),
        ([said], "hmm"),
        ([shown, other], "hm"),
        ([{"text": "so"}, {"thoughtSignature": signature("hmm")}], "hmm"),
    ):
        read = messages(USER, {"role": "model", "parts": parts}, USER)[1]
        assert read == {"role": "assistant", "content": "so", "reasoning_content": thought}
    assert messages(USER, {"role": "model", "parts": [other]}, USER)[1].keys() == {
        "role",
        "content",
    }
