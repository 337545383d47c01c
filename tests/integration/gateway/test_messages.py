"""Calls of Anthropic's client: real Kafka, a real gateway, a scripted manager."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import orjson
import pytest
from pydantic import BaseModel

from seamlessflow.schemas.records import CountTokens, Record, ReplyDelta, RequestTurn, Sampling
from tests.builders.gateway.scripted_manager import (
    USER,
    GatewayProcess,
    ScriptedManager,
    deltas,
    finished,
)

ASKED: Any = {"model": "m", "max_tokens": 9, "messages": [USER]}
CALL = {"id": "call_x_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL: Any = {"name": "f", "description": "does", "input_schema": {"type": "object"}}


@pytest.fixture
def client(gateway: GatewayProcess, session: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=gateway.url, api_key=gateway.keys.session_key(session), max_retries=0
    ) as made:
        yield made


def thinking(turn: RequestTurn) -> list[Record]:
    """Return an answer with everything a message can hold, streamed one token at a time."""
    assert turn.reply is not None
    parts: list[dict[str, Any]] = [
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "let me"},
        {"content": " see"},
        {"tool_calls": [{"index": 0, **CALL}]},
    ]
    sent = [
        ReplyDelta(
            gateway=turn.reply.gateway,
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            token_offset=offset,
            token_count=1,
            delta=orjson.dumps(part),
            prompt_tokens=5,
        )
        for offset, part in enumerate(parts)
    ]
    message = {"reasoning_content": "hm", "tool_calls": [CALL]}
    end = finished(turn, "let me see", message=message, finish_reason="tool_calls")
    return [*sent, end]


def test_the_official_client_gets_an_answer(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    answer = client.messages.create(
        model="m",
        max_tokens=9,
        system="be kind",
        messages=[USER],
        stop_sequences=["END"],
        extra_body={"temperature": 1, "top_k": 5},
    )
    turn = manager.await_command(RequestTurn, session)
    assert answer.id == f"msg_{turn.turn_id}"
    assert answer._request_id == turn.turn_id
    assert [block.to_dict() for block in answer.content] == [{"type": "text", "text": "hello"}]
    assert (answer.stop_reason, answer.model, answer.role) == ("end_turn", "m", "assistant")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 5)
    assert turn.dialect == "anthropic.messages"
    assert turn.messages == (
        b'{"content":"be kind","role":"system"}',
        b'{"content":"hi","role":"user"}',
    )
    assert turn.sampling == Sampling(max_tokens=9, temperature=1, top_k=5, stop=("END",))


def test_a_bearer_token_does_as_well(gateway: GatewayProcess, session: str) -> None:
    token = gateway.keys.session_key(session)
    with anthropic.Anthropic(base_url=gateway.url, auth_token=token, api_key=None) as client:
        assert client.messages.create(**ASKED).stop_reason == "end_turn"


def test_the_path_may_name_the_session(gateway: GatewayProcess, session: str) -> None:
    base_url = f"{gateway.url}/sessions/{session}"
    token = gateway.admin["authorization"].removeprefix("Bearer ")
    with anthropic.Anthropic(base_url=base_url, api_key=token) as client:
        assert client.messages.create(**ASKED).stop_reason == "end_turn"
        assert client.beta.messages.create(**ASKED, betas=["context-management-2025-06-27"])


def test_the_asynchronous_client_is_answered_many_times_at_once(
    gateway: GatewayProcess, session: str
) -> None:
    async def converse() -> set[str]:
        async with anthropic.AsyncAnthropic(
            base_url=gateway.url, api_key=gateway.keys.session_key(session)
        ) as client:
            calls = [client.messages.create(**ASKED) for _ in range(50)]
            return {answer.id for answer in await asyncio.gather(*calls)}

    assert len(asyncio.run(converse())) == 50


def test_tool_calls_come_whole_and_go_back(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = thinking
    answer = client.messages.create(**ASKED, tools=[TOOL], tool_choice={"type": "any"})
    assert answer.stop_reason == "tool_use"
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    use = answer.content[2]
    assert use.type == "tool_use"
    assert (use.id, use.name, use.input) == ("call_x_0", "f", {"a": 1})
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "42"}
    client.messages.create(
        model="m",
        max_tokens=9,
        messages=[USER, answer.to_param(), {"role": "user", "content": [result]}],
        tools=[TOOL],
    )
    first, second = (manager.await_command(RequestTurn, session, n) for n in (1, 2))
    assert first.tool_choice == "required"
    assert orjson.loads(second.messages[1]) == {
        "role": "assistant",
        "content": "let me see",
        "reasoning_content": "hm",
        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": '{"a": 1}'}}],
    }
    assert orjson.loads(second.messages[2]) == {
        "role": "tool",
        "tool_call_id": "call_x_0",
        "content": "42",
    }
    function = {"name": "f", "description": "does", "parameters": {"type": "object"}}
    assert second.tools == first.tools == orjson.dumps([{"type": "function", "function": function}])


def test_a_stream_gives_each_block_as_it_comes(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = thinking
    with client.messages.stream(**ASKED, tools=[TOOL]) as stream:
        events = list(stream)
        whole = stream.get_final_message()
    turn = manager.await_command(RequestTurn, session)
    assert turn.stream
    assert stream.request_id == turn.turn_id
    assert [event.type for event in events if not event.type.startswith("content_block_delta")] == [
        "message_start",
        *["content_block_start", "thinking", "thinking", "signature", "content_block_stop"],
        *["content_block_start", "text", "text", "content_block_stop"],
        *["content_block_start", "input_json", "content_block_stop"],
        "message_delta",
        "message_stop",
    ]
    assert events[0].type == "message_start" and events[0].message.usage.input_tokens == 5
    assert [block.to_dict() for block in whole.content] == [
        {"type": "thinking", "thinking": "hm", "signature": turn.turn_id},
        {"type": "text", "text": "let me see"},
        {"type": "tool_use", "id": "call_x_0", "name": "f", "input": {"a": 1}},
    ]
    assert whole.stop_reason == "tool_use"
    assert whole.usage.output_tokens == len("let me see")


def test_the_asynchronous_client_streams(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [*deltas(turn, "a", "b"), finished(turn, "abc")]

    async def converse() -> str:
        async with (
            anthropic.AsyncAnthropic(
                base_url=gateway.url, api_key=gateway.keys.session_key(session)
            ) as client,
            client.messages.stream(**ASKED) as stream,
        ):
            return "".join([text async for text in stream.text_stream])

    assert asyncio.run(converse()) == "abc"


def test_a_raw_stream_can_be_read_as_well(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, ""),  # Says that it is alive.
        *deltas(turn, "he"),
        finished(turn),
    ]
    kinds = [event.type for event in client.messages.create(**ASKED, stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert "ping" not in kinds


def test_an_answer_that_reached_its_length_says_so(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, finish_reason="length")]
    assert client.messages.create(**ASKED).stop_reason == "max_tokens"


def test_a_form_of_the_answer_can_be_asked_for(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    class City(BaseModel):
        name: str

    manager.scripts[session] = lambda turn: [finished(turn, '{"name": "Ulm"}')]
    answer = client.messages.parse(**ASKED, output_format=City)
    assert answer.parsed_output == City(name="Ulm")
    schema = manager.await_command(RequestTurn, session).sampling.json_schema
    assert schema is not None and orjson.loads(schema)["required"] == ["name"]


def test_tokens_of_a_prompt_are_counted(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    counted = client.messages.count_tokens(
        model="m", system="be kind", messages=[USER], tools=[TOOL]
    )
    asked = manager.await_command(CountTokens, session)
    assert counted.input_tokens == len(asked.messages) == 2
    assert asked.messages[1] == b'{"content":"hi","role":"user"}'
    assert asked.tools is not None and orjson.loads(asked.tools)[0]["function"]["name"] == "f"
    assert client.beta.messages.count_tokens(model="m", messages=[USER]).input_tokens == 1


def test_models_are_listed(client: anthropic.Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["policy"]
    assert client.models.retrieve("policy").display_name == "policy"
