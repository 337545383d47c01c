"""A turn that comes back as several messages is one again, by the ids of its calls."""

from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.routes import DIALECTS

USER = {"role": "user", "content": "hi"}
END = {"role": "user", "content": "so"}


def call(number: int, turn: str = "t") -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"id": f"call_{turn}_{number}", "type": "function", "function": function}


def said(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def told(number: int, turn: str = "t") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{turn}_{number}", "content": str(number)}


def chat(*messages: dict[str, Any]) -> list[Any]:
    body = orjson.dumps({"model": "m", "messages": messages})
    return [orjson.loads(one) for one in DIALECTS["/v1/chat/completions"].parse(body, 1).messages]


@pytest.mark.parametrize(
    "sent",
    [
        [said(call(0), call(1)), told(0), told(1)],
        [said(call(0)), told(0), said(call(1)), told(1)],
        [said(call(0)), said(call(1)), told(1), told(0)],
        [said(call(0)), told(0), said(call(0), call(1)), told(1)],
    ],
)
def test_calls_of_one_turn_are_one_message_of_the_chat(sent: list[dict[str, Any]]) -> None:
    assert chat(USER, *sent, END) == [USER, said(call(0), call(1)), told(0), told(1), END]


def test_what_stands_beside_the_calls_is_kept() -> None:
    first = said(call(0), content="look", reasoning_content="hm")
    read = chat(USER, first, told(0), said(call(1), content=None), told(1))
    assert read[1] == said(call(0), call(1), content="look", reasoning_content="hm")


@pytest.mark.parametrize(
    "sent",
    [
        [said(call(0)), told(0), said(call(0, "u")), told(0, "u")],
        [said(call(0)), told(0), END, said(call(1)), told(1)],
        [said(call(0)), told(0), {"role": "assistant", "content": "x"}, END],
    ],
)
def test_messages_of_other_turns_stay_apart(sent: list[dict[str, Any]]) -> None:
    assert chat(USER, *sent) == [USER, *sent]


def test_calls_of_one_turn_are_one_message_at_anthropics_route() -> None:
    def used(number: int) -> dict[str, Any]:
        block = {"type": "tool_use", "id": f"call_t_{number}", "name": "f", "input": {}}
        return {"role": "assistant", "content": [block]}

    def result(number: int) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"call_t_{number}", "content": "x"}
        return {"role": "user", "content": [block]}

    messages = [USER, used(0), result(0), used(1), result(1)]
    body = orjson.dumps({"model": "m", "max_tokens": 9, "messages": messages})
    read = [orjson.loads(one) for one in DIALECTS["/v1/messages"].parse(body, 1).messages]
    assert [one["role"] for one in read] == ["user", "assistant", "tool", "tool"]
    assert [one["id"] for one in read[1]["tool_calls"]] == ["call_t_0", "call_t_1"]


def test_calls_of_one_turn_are_one_message_at_responses_without_ids_of_items() -> None:
    def called(number: int) -> dict[str, Any]:
        name = f"call_t_{number}"
        return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}

    def output(number: int) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": f"call_t_{number}", "output": "x"}

    items = [USER, called(0), output(0), called(1), output(1)]
    body = orjson.dumps({"model": "m", "input": items})
    read = [orjson.loads(one) for one in DIALECTS["/v1/responses"].parse(body, 1).messages]
    assert [one["role"] for one in read] == ["user", "assistant", "tool", "tool"]


def test_calls_of_one_turn_are_one_message_at_googles_route() -> None:
    def called(number: int) -> dict[str, Any]:
        function = {"id": f"call_t_{number}", "name": "f", "args": {}}
        return {"role": "model", "parts": [{"functionCall": function}]}

    def response(number: int) -> dict[str, Any]:
        answer = {"id": f"call_t_{number}", "name": "f", "response": {"output": "x"}}
        return {"role": "user", "parts": [{"functionResponse": answer}]}

    contents = [called(0), response(0), called(1), response(1)]
    body = orjson.dumps({"contents": [{"role": "user", "parts": [{"text": "hi"}]}, *contents]})
    path = "/v1beta/models/*:generateContent"
    read = [orjson.loads(one) for one in DIALECTS[path].parse(body, 1).messages]
    assert [one["role"] for one in read] == ["user", "assistant", "tool", "tool"]
