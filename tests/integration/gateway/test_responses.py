"""Calls of OpenAI's client to `/v1/responses`: real Kafka, a real gateway, a scripted manager."""

import asyncio
from typing import Any

import openai
import orjson
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import AssignReward, Record, RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    GatewayProcess,
    ScriptedManager,
    answered,
    deltas,
    finished,
)

TOOLS: list[Any] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "patch", "description": "Edits files."},
]
ENCRYPTED: Any = ["reasoning.encrypted_content"]


class Sum(BaseModel):
    value: int


def sampled(turn: RequestTurn) -> dict[str, Any]:
    """Return thinking, text and two calls, as a worker would send them."""
    calls = [("f", '{"a":1}'), ("patch", '{"input": "*** Begin Patch\\n+é"}')]
    return {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": tool_call_id(turn.turn_id, number),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for number, (name, arguments) in enumerate(calls)
        ],
    }


def calls_then_done(turn: RequestTurn) -> list[Record]:
    """Return calls of the tools, and once they are answered a last message."""
    if b'"role":"tool"' in turn.messages[-1]:
        return [finished(turn, "done")]
    return [finished(turn, message=sampled(turn), finish_reason="tool_calls")]


def outputs(response: Response) -> list[Any]:
    """Return the tools' answers."""
    return [
        {"type": f"{item.type}_output", "call_id": item.call_id, "output": f"{item.type} ran"}
        for item in response.output
        if item.type in ("function_call", "custom_tool_call")
    ]


def test_the_official_client_gets_a_response(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    response = client.responses.create(
        model="m", input="hi", instructions="be brief", max_output_tokens=9
    )
    turn = manager.await_command(RequestTurn, session)
    assert response.id == f"resp_{turn.turn_id}"
    assert (response.output_text, response.status) == ("hello", "completed")
    assert response.usage is not None and response.usage.total_tokens == 10
    assert turn.messages == (
        b'{"content":"be brief","role":"system"}',
        b'{"content":"hi","role":"user"}',
    )
    assert (turn.dialect, turn.own_messages, turn.sampling.max_tokens) == ("openai.responses", 1, 9)


def test_the_asynchronous_client_is_answered_whole_and_streamed(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: (
        [*deltas(turn, "a", "b"), finished(turn, "abc")] if turn.stream else [finished(turn, "abc")]
    )

    async def converse() -> tuple[str, str]:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session)
        ) as client:
            whole = await client.responses.create(model="m", input="hi")
            stream = await client.responses.create(model="m", input="hi", stream=True)
            texts = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            return whole.output_text, "".join(texts)

    assert asyncio.run(converse()) == ("abc", "abc")


def test_a_stream_gives_the_text_as_it_comes(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        first, second, last = deltas(turn, "he", "ll", "o")
        return [first, second, finished(turn, token_offset=last.token_offset, delta=last.delta)]

    manager.scripts[session] = script
    with client.responses.stream(model="m", input="hi") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert texts == ["he", "ll", "o"]
    assert response.output_text == "hello"
    assert response.usage is not None and response.usage.output_tokens == 5


def test_an_answer_is_parsed_by_the_schema_asked_for(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, '{"value": 4}')]
    response = client.responses.parse(model="m", input="2 + 2", text_format=Sum)
    assert response.output_parsed == Sum(value=4)
    schema = manager.await_command(RequestTurn, session).sampling.json_schema
    assert schema is not None and orjson.loads(schema)["required"] == ["value"]


@pytest.mark.parametrize("include", [[], ENCRYPTED], ids=["plain", "encrypted"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_is_sent_back_is_what_was_sampled(
    client: openai.OpenAI, manager: ScriptedManager, session: str, include: Any, stream: bool
) -> None:
    manager.scripts[session] = calls_then_done
    history: list[Any] = [{"role": "user", "content": "hi"}]
    asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "include": include}
    if stream:
        with client.responses.stream(input=history, **asked) as streamed:
            response: Response = streamed.get_final_response()
    else:
        response = client.responses.create(input=history, **asked)
    history += [*response.output, *outputs(response)]
    assert client.responses.create(input=history, **asked).output_text == "done"

    first, second = (manager.await_command(RequestTurn, session, number) for number in (1, 2))
    assert second.messages[0] == first.messages[0]
    assert orjson.loads(second.messages[1]) == sampled(first)
    assert [orjson.loads(message)["content"] for message in second.messages[2:]] == [
        "function_call ran",
        "custom_tool_call ran",
    ]
    assert second.tools == first.tools


def test_a_request_goes_on_from_a_response(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = calls_then_done
    first = client.responses.create(model="m", input="hi", tools=TOOLS, instructions="a")
    client.responses.create(
        model="m",
        input=outputs(first),
        tools=TOOLS,
        instructions="b",
        previous_response_id=first.id,
    )
    turn = manager.await_command(RequestTurn, session, 2)
    assert turn.previous_turn == manager.await_command(RequestTurn, session).turn_id
    assert [orjson.loads(message)["role"] for message in turn.messages] == [
        "system",
        "tool",
        "tool",
    ]
    assert turn.own_messages == 1


def test_a_response_is_rewarded_by_its_id(
    gateway: GatewayProcess, client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    response = client.responses.create(model="m", input="hi")
    path = f"{gateway.url}/sessions/{session}/reward"
    reward = http.post(path, headers=gateway.admin, json={"value": 1, "turn": response.id})
    assert reward.status_code == 200
    turn = manager.await_command(RequestTurn, session)
    assert manager.await_command(AssignReward, session).reward.turn_id == turn.turn_id


def test_an_answer_cut_short_is_incomplete(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, finish_reason="length")]
    response = client.responses.create(model="m", input="hi", max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_has_its_status_streamed_or_not(
    client: openai.OpenAI, manager: ScriptedManager, session: str, stream: bool
) -> None:
    manager.scripts[session] = lambda turn: [
        answered(turn, 404, "unknown_session", turn_id=turn.turn_id, detail="in words")
    ]
    with pytest.raises(openai.NotFoundError) as raised:
        client.responses.create(model="m", input="hi", stream=stream)
    assert raised.value.code == "unknown_session"


def test_a_stream_that_fails_after_it_began_ends_with_an_error(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, "he"),
        finished(turn, status=504, reason="deadline"),
    ]
    texts = []
    with pytest.raises(openai.APIError, match="deadline"):
        for event in client.responses.create(model="m", input="hi", stream=True):
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
    assert texts == ["he"]


def test_a_wrong_parameter_is_named(client: openai.OpenAI) -> None:
    hosted: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="hi", background=True)
    assert raised.value.param == "background"
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="hi", tools=[hosted])
    assert raised.value.param == "tools[0].type"


@pytest.mark.parametrize("asked", [True, False, None])
def test_responses_are_not_kept_to_be_read_again(client: openai.OpenAI, asked: bool | None) -> None:
    response = client.responses.create(model="m", input="hi", store=asked)
    assert response.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
