"""Results of tools stand in the order of their calls, in every dialect; each call has one.

A turn that comes back as several messages is one again, by the ids of its calls.
"""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS

Sent = Callable[[Sequence[str], Sequence[str]], dict[str, Any]]
"""Return a body: calls with these ids, results for those, then a question of the user."""


def chat(calls: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    called = [{"id": call_id, "type": "function", "function": function} for call_id in calls]
    return {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": called},
            *(
                {"role": "tool", "tool_call_id": call_id, "content": f"of {call_id}"}
                for call_id in results
            ),
            {"role": "user", "content": "so"},
        ]
    }


def responses(calls: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output"}
    return {
        "input": [
            {"role": "user", "content": "hi"},
            *({**call, "call_id": call_id} for call_id in calls),
            *({**output, "call_id": call_id, "output": f"of {call_id}"} for call_id in results),
            {"role": "user", "content": "so"},
        ]
    }


def anthropic(calls: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    used = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in calls]
    blocks = [
        {"type": "tool_result", "tool_use_id": call_id, "content": f"of {call_id}"}
        for call_id in results
    ]
    return {
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": used},
            {"role": "user", "content": [*blocks, {"type": "text", "text": "so"}]},
        ],
    }


def google(calls: Sequence[str], results: Sequence[str]) -> dict[str, Any]:
    called = [{"functionCall": {"id": call_id, "name": "f", "args": {}}} for call_id in calls]
    parts = [
        {"functionResponse": {"id": call_id, "name": "f", "response": {"output": f"of {call_id}"}}}
        for call_id in results
    ]
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": called},
            {"role": "user", "parts": [*parts, {"text": "so"}]},
        ]
    }


SENT: dict[str, Sent] = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": anthropic,
    "/v1beta/models/*:generateContent": google,
}

every_dialect = pytest.mark.parametrize("path", list(SENT))


def rendered(path: str, calls: Sequence[str], results: Sequence[str]) -> list[Any]:
    body = orjson.dumps({"model": "m", **SENT[path](calls, results)})
    return [orjson.loads(message) for message in DIALECTS[path].parse(body, 1).messages]


@every_dialect
@pytest.mark.parametrize("order", ["ab", "ba", "bca", "cab", "acb"])
def test_results_stand_in_the_order_of_the_calls(path: str, order: str) -> None:
    calls = sorted(order)
    answers = [
        message for message in rendered(path, calls, list(order)) if message["role"] == "tool"
    ]
    assert [message["content"] for message in answers] == [f"of {call}" for call in calls]
    assert [message["tool_call_id"] for message in answers] == calls


@every_dialect
def test_a_second_result_of_a_call_is_refused_with_its_id(path: str) -> None:
    with pytest.raises(ApiError) as error:
        rendered(path, ["ca", "cb"], ["ca", "cb", "ca"])
    assert error.value.status == 400 and "ca" in error.value.message


@every_dialect
def test_a_call_without_a_result_is_refused_with_its_id(path: str) -> None:
    with pytest.raises(ApiError) as error:
        rendered(path, ["ca", "cb"], ["cb"])
    assert error.value.status == 400 and "ca" in error.value.message


@pytest.mark.parametrize("path", [path for path in SENT if path != "/v1/responses"])
def test_what_the_user_says_stands_behind_all_results(path: str) -> None:
    body = SENT[path](["ca", "cb"], ["ca", "cb"])
    turns = body.get("messages") or body["contents"]
    user = turns[0]
    places = [place for place in range(2, len(turns)) if turns[place] is not turns[-1]] or [2]
    for place in places:
        changed = {**body, _turns(body): [*turns[:place], user, *turns[place:]]}
        with pytest.raises(ApiError) as error:
            DIALECTS[path].parse(orjson.dumps({"model": "m", **changed}), 1)
        assert error.value.status == 400 and "cb" in error.value.message


def test_items_of_others_may_stand_between_a_call_and_its_output() -> None:
    body = responses(["ca"], ["ca"])
    user, call, output, _ = body["input"]
    said = {"model": "m", "input": [user, call, user, output]}
    assert len(DIALECTS["/v1/responses"].parse(orjson.dumps(said), 1).messages) == 4


def test_responses_and_texts_of_one_google_content_may_come_in_any_order() -> None:
    path = "/v1beta/models/*:generateContent"
    body = google(["ca", "cb"], ["ca", "cb"])
    *_, last = body["contents"]
    read = []
    for parts in (last["parts"], last["parts"][::-1]):
        contents = [*body["contents"][:-1], {"role": "user", "parts": parts}]
        sent = orjson.dumps({"model": "m", "contents": contents})
        read.append(DIALECTS[path].parse(sent, 1).messages)
    assert read[0] == read[1]


def _turns(body: dict[str, Any]) -> str:
    return "messages" if "messages" in body else "contents"


def test_ids_that_each_turn_uses_again_name_the_calls_of_their_turn() -> None:
    messages = [
        message
        for turn in range(2)
        for message in chat(["0", "1"], ["1", "0"])["messages"]
        if turn == 0 or message["role"] != "user" or message["content"] != "hi"
    ]
    body = orjson.dumps({"model": "m", "messages": messages})
    read = map(orjson.loads, DIALECTS["/v1/chat/completions"].parse(body, 1).messages)
    assert [message["tool_call_id"] for message in read if message["role"] == "tool"] == [
        "0",
        "1",
        "0",
        "1",
    ]


def test_two_calls_of_one_id_get_their_results_in_the_order_in_which_they_came() -> None:
    body = chat(["x", "y", "x"], ["x", "x", "y"])
    for number, message in enumerate(body["messages"]):
        message["content"] = str(number)
    read = DIALECTS["/v1/chat/completions"].parse(orjson.dumps({"model": "m", **body}), 1).messages
    answers = [entry for entry in map(orjson.loads, read) if entry["role"] == "tool"]
    assert [entry["content"] for entry in answers] == ["2", "4", "3"]


def test_outputs_behind_a_response_stand_in_the_order_of_its_calls() -> None:
    outputs = [
        {"type": "function_call_output", "call_id": f"call_t_{number}", "output": str(number)}
        for number in (10, 2, 1)
    ]
    body = {"model": "m", "previous_response_id": "resp_t", "input": outputs}
    read = DIALECTS["/v1/responses"].parse(orjson.dumps(body), 1).messages
    assert [orjson.loads(message)["content"] for message in read] == ["1", "2", "10"]


def test_outputs_of_calls_that_are_only_named_stand_in_their_order() -> None:
    named = [{"type": "item_reference", "id": f"fc_t_{number}"} for number in (0, 1)]
    outputs = [
        {"type": "function_call_output", "call_id": f"call_t_{number}", "output": str(number)}
        for number in (1, 0)
    ]
    items = [{"role": "user", "content": "hi"}, *named, *outputs]
    body = {"model": "m", "input": [*items, {"role": "user", "content": "so"}]}
    read = DIALECTS["/v1/responses"].parse(orjson.dumps(body), 1).messages
    assert [orjson.loads(message)["content"] for message in read[2:]] == ["0", "1", "so"]


def test_a_conversation_may_end_with_calls() -> None:
    body = chat(["a", "b"], [])
    del body["messages"][-1]
    read = DIALECTS["/v1/chat/completions"].parse(orjson.dumps({"model": "m", **body}), 1).messages
    assert len(read) == 2


USER = {"role": "user", "content": "hi"}
END = {"role": "user", "content": "so"}


def call(number: int, turn: str = "t") -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"id": f"call_{turn}_{number}", "type": "function", "function": function}


def said(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def tool_result(number: int, turn: str = "t") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{turn}_{number}", "content": str(number)}


def read_chat(*messages: dict[str, Any]) -> list[Any]:
    body = orjson.dumps({"model": "m", "messages": messages})
    return [
        orjson.loads(message)
        for message in DIALECTS["/v1/chat/completions"].parse(body, 1).messages
    ]


@pytest.mark.parametrize(
    "sent",
    [
        [said(call(0), call(1)), tool_result(0), tool_result(1)],
        [said(call(0)), tool_result(0), said(call(1)), tool_result(1)],
        [said(call(0)), said(call(1)), tool_result(1), tool_result(0)],
        [said(call(0)), tool_result(0), said(call(0), call(1)), tool_result(1)],
    ],
)
def test_calls_of_one_turn_are_one_message_of_the_chat(sent: list[dict[str, Any]]) -> None:
    assert read_chat(USER, *sent, END) == [
        USER,
        said(call(0), call(1)),
        tool_result(0),
        tool_result(1),
        END,
    ]


def test_what_stands_beside_the_calls_is_kept() -> None:
    first = said(call(0), content="look", reasoning_content="hm")
    read = read_chat(USER, first, tool_result(0), said(call(1), content=None), tool_result(1))
    assert read[1] == said(call(0), call(1), content="look", reasoning_content="hm")


@pytest.mark.parametrize(
    "sent",
    [
        [said(call(0)), tool_result(0), said(call(0, "u")), tool_result(0, "u")],
        [said(call(0)), tool_result(0), END, said(call(1)), tool_result(1)],
        [said(call(0)), tool_result(0), {"role": "assistant", "content": "x"}, END],
    ],
)
def test_messages_of_other_turns_stay_apart(sent: list[dict[str, Any]]) -> None:
    assert read_chat(USER, *sent) == [USER, *sent]


def test_calls_of_one_turn_are_one_message_at_anthropics_route() -> None:
    def used(number: int) -> dict[str, Any]:
        block = {"type": "tool_use", "id": f"call_t_{number}", "name": "f", "input": {}}
        return {"role": "assistant", "content": [block]}

    def result(number: int) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"call_t_{number}", "content": "x"}
        return {"role": "user", "content": [block]}

    messages = [USER, used(0), result(0), used(1), result(1)]
    body = orjson.dumps({"model": "m", "max_tokens": 9, "messages": messages})
    read = [orjson.loads(message) for message in DIALECTS["/v1/messages"].parse(body, 1).messages]
    assert [message["role"] for message in read] == ["user", "assistant", "tool", "tool"]
    assert [entry["id"] for entry in read[1]["tool_calls"]] == ["call_t_0", "call_t_1"]


def test_calls_of_one_turn_are_one_message_at_responses_without_ids_of_items() -> None:
    def called(number: int) -> dict[str, Any]:
        name = f"call_t_{number}"
        return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}

    def output(number: int) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": f"call_t_{number}", "output": "x"}

    items = [USER, called(0), output(0), called(1), output(1)]
    body = orjson.dumps({"model": "m", "input": items})
    read = [orjson.loads(message) for message in DIALECTS["/v1/responses"].parse(body, 1).messages]
    assert [message["role"] for message in read] == ["user", "assistant", "tool", "tool"]


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
    read = [orjson.loads(message) for message in DIALECTS[path].parse(body, 1).messages]
    assert [message["role"] for message in read] == ["user", "assistant", "tool", "tool"]
