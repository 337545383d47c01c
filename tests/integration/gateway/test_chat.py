"""Chat calls of OpenAI's client: real Kafka, a real gateway, a scripted manager."""

import asyncio
from dataclasses import replace
from typing import Any

import openai
import orjson

from seamlessflow.schemas.records import (
    Record,
    RequestTurn,
    Sampling,
)
from tests.builders.gateway.scripted_manager import (
    USER,
    GatewayProcess,
    ScriptedManager,
    deltas,
    finished,
)

CALL = {"id": "call_x_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def test_the_official_client_gets_an_answer(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    answer = client.chat.completions.create(
        model="m", messages=[USER], temperature=1, max_tokens=9, extra_body={"top_k": 5}
    )
    turn = manager.await_command(RequestTurn, session)
    assert answer.id == f"chatcmpl-{turn.turn_id}"
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens == 10
    assert answer.model == "m"
    assert turn.messages == (b'{"content":"hi","role":"user"}',)
    assert turn.sampling == Sampling(temperature=1, max_tokens=9, top_k=5)
    assert turn.deadline_ms > turn.issued_at_ms


def test_the_asynchronous_client_is_answered_many_times_at_once(
    gateway: GatewayProcess, session: str
) -> None:
    async def converse() -> set[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session)
        ) as client:
            calls = [client.chat.completions.create(model="m", messages=[USER]) for _ in range(100)]
            return {answer.id for answer in await asyncio.gather(*calls)}

    assert len(asyncio.run(converse())) == 100


def test_a_stream_gives_the_text_as_it_comes(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        first, second, last = deltas(turn, "he", "ll", "o")
        end = finished(turn, token_offset=last.token_offset, delta=last.delta)
        return [first, second, first, end]

    manager.scripts[session] = script
    stream = client.chat.completions.create(
        model="m", messages=[USER], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert [text for text in texts if text] == ["he", "ll", "o"]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 5
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert manager.await_command(RequestTurn, session).stream


def test_the_asynchronous_client_streams(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [*deltas(turn, "a", "b"), finished(turn, "abc")]

    async def converse() -> str:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session)
        ) as client:
            stream = await client.chat.completions.create(model="m", messages=[USER], stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(converse()) == "abc"


def test_tool_calls_come_whole_and_go_back(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        if b'"tool"' in turn.messages[-1]:
            return [finished(turn, "done")]
        message = {"tool_calls": [CALL], "reasoning_content": "let me see"}
        return [finished(turn, None, message=message, finish_reason="tool_calls")]

    manager.scripts[session] = script
    messages: list[Any] = [USER]
    answer = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content is None and message.tool_calls is not None
    assert message.tool_calls[0].model_dump() == CALL
    messages += [message, {"role": "tool", "tool_call_id": CALL["id"], "content": "42"}]
    assert client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    turn = manager.await_command(RequestTurn, session, 2)
    assert orjson.loads(turn.messages[1]) == {
        "role": "assistant",
        "reasoning_content": "let me see",
        "tool_calls": [CALL],
    }
    assert turn.tools is not None and orjson.loads(turn.tools) == [TOOL]


def test_tool_calls_are_streamed(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        finished(turn, None, message={"tool_calls": [CALL]}, finish_reason="tool_calls")
    ]
    with client.chat.completions.stream(model="m", messages=[USER], tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    call = message.tool_calls[0]
    assert (call.id, call.type, call.function.arguments) == ("call_x_0", "function", '{"a":1}')


def test_a_chunk_of_merged_replies_has_one_kind_and_one_call(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    calls = [{"index": n, **CALL, "id": f"call_x_{n}"} for n in range(2)]
    together = {"reasoning_content": "hm", "content": "so", "tool_calls": calls}

    def script(turn: RequestTurn) -> list[Record]:
        (merged,) = deltas(turn, "whatever")
        message = {**together, "tool_calls": [{**CALL, "id": call["id"]} for call in calls]}
        end = finished(turn, "so", message=message, token_offset=8, finish_reason="tool_calls")
        return [replace(merged, delta=orjson.dumps(together)), end]

    manager.scripts[session] = script
    chunks = client.chat.completions.create(model="m", messages=[USER], tools=[TOOL], stream=True)
    brought = [_kinds(chunk.choices[0].delta) for chunk in chunks]
    assert [kind for kind in brought if kind] == [["hm"], ["so"], ["call_x_0"], ["call_x_1"]]


def _kinds(delta: Any) -> list[str]:
    texts = [getattr(delta, "reasoning_content", None), delta.content]
    return [text for text in texts if text] + [call.id for call in delta.tool_calls or ()]


def test_choices_are_streamed_side_by_side_each_with_its_calls(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        call = {**CALL, "id": f"call_x{turn.choice}_0"}
        message = {"tool_calls": [call]}
        return [finished(turn, f"{turn.choice}", message=message, finish_reason="tool_calls")]

    manager.scripts[session] = script
    asked: Any = {"tools": [TOOL], "tool_choice": "required", "stop": ["END"]}
    with client.chat.completions.stream(model="m", messages=[USER], n=2, **asked) as stream:
        choices = stream.get_final_completion().choices
    for number, choice in enumerate(choices):
        assert (choice.index, choice.finish_reason) == (number, "tool_calls")
        assert choice.message.content == f"{number}"
        assert choice.message.tool_calls is not None
        assert [call.id for call in choice.message.tool_calls] == [f"call_x{number}_0"]
    whole = client.chat.completions.create(model="m", messages=[USER], n=2, **asked)
    assert [choice.message.content for choice in whole.choices] == ["0", "1"]
    for number in (1, 2, 3, 4):
        turn = manager.await_command(RequestTurn, session, number)
        assert (turn.tool_choice, turn.sampling.stop) == ("required", ("END",))


def test_several_choices_are_several_turns(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, f"choice {turn.choice}")]
    answer = client.chat.completions.create(model="m", messages=[USER], n=3)
    assert [c.message.content for c in answer.choices] == [f"choice {n}" for n in range(3)]
    turns = [manager.await_command(RequestTurn, session, n) for n in (1, 2, 3)]
    assert len({turn.turn_id for turn in turns}) == len({t.body_hash for t in turns}) == 3
