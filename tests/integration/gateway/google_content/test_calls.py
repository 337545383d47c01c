"""Calls of Google's client: real Kafka, a real gateway, a scripted manager."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from google import genai
from google.genai import errors, types

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import CountTokens, Record, RequestTurn, Sampling
from tests import http
from tests.builders.gateway.scripted_manager import (
    GatewayProcess,
    ScriptedManager,
    answered,
    deltas,
    finished,
    gateway_process,
)

BODY: Any = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CALL = {"id": "call_x_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name="f", parameters_json_schema={"type": "object"})
    ]
)


def made(url: str, key: str, **options: Any) -> genai.Client:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, **options))


@pytest.fixture
def client(gateway: GatewayProcess, session: str) -> Iterator[genai.Client]:
    opened = made(gateway.url, gateway.keys.session_key(session))
    yield opened
    opened.close()


def test_the_official_client_gets_an_answer(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    config = types.GenerateContentConfig(
        system_instruction="be kind",
        temperature=1,
        top_k=5,
        max_output_tokens=9,
        stop_sequences=["END"],
    )
    answer = client.models.generate_content(model="m", contents="hi", config=config)
    turn = manager.await_command(RequestTurn, session)
    assert answer.text == "hello"
    assert (answer.response_id, answer.model_version) == (turn.turn_id, "m")
    assert answer.usage_metadata is not None
    assert answer.usage_metadata.total_token_count == 10
    assert turn.dialect == "google.content"
    assert turn.messages == (
        b'{"content":"be kind","role":"system"}',
        b'{"content":"hi","role":"user"}',
    )
    assert turn.sampling == Sampling(max_tokens=9, temperature=1, top_k=5, stop=("END",))


def test_calls_of_functions_come_and_go_back(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        finished(turn, None, message={"tool_calls": [CALL], "reasoning_content": "hm"})
    ]
    chat = client.chats.create(model="m", config=types.GenerateContentConfig(tools=[TOOL]))
    asked = chat.send_message("hi").function_calls
    assert asked is not None and [(call.name, call.args) for call in asked] == [("f", {"a": 1})]
    chat.send_message(types.Part.from_function_response(name="f", response={"output": "42"}))
    second = manager.await_command(RequestTurn, session, 2)
    assert orjson.loads(second.messages[1])["reasoning_content"] == "hm"
    assert orjson.loads(second.messages[2]) == {
        "role": "tool",
        "tool_call_id": "call_x_0",
        "content": "42",
    }


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_the_path_may_name_the_session_in_either_version(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, version: str
) -> None:
    key = gateway.admin["authorization"].removeprefix("Bearer ")
    opened = made(f"{gateway.url}/sessions/{session}", key, api_version=version)
    assert opened.models.generate_content(model="m", contents="hi").text == "hello"
    assert manager.await_command(RequestTurn, session)
    opened.close()


def test_the_client_streams_through_pauses(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, ""),  # Says that it is alive.
        *deltas(turn, "he"),
        finished(turn),
    ]
    chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
    assert "".join(chunk.text or "" for chunk in chunks) == "hello"
    assert chunks[-1].candidates is not None
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP


def test_the_asynchronous_client_streams(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, ""),
        *deltas(turn, "a", "b"),
        finished(turn, "abc"),
    ]

    async def converse() -> str:
        async with made(gateway.url, gateway.keys.session_key(session)).aio as client:
            stream = await client.models.generate_content_stream(model="m", contents="hi")
            return "".join([chunk.text or "" async for chunk in stream])

    assert asyncio.run(converse()) == "abc"


def test_a_chunk_of_merged_replies_has_one_part(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    calls = [{"index": n, **CALL, "id": f"call_x_{n}"} for n in range(2)]
    together = {"reasoning_content": "hm", "content": "so", "tool_calls": calls}

    def script(turn: RequestTurn) -> list[Record]:
        (merged,) = deltas(turn, "whatever")
        end = finished(turn, "so", message={"tool_calls": [CALL, CALL]}, token_offset=8)
        return [replace(merged, delta=orjson.dumps(together)), end]

    manager.scripts[session] = script
    config = types.GenerateContentConfig(
        tools=[TOOL], thinking_config=types.ThinkingConfig(include_thoughts=True)
    )
    stream = client.models.generate_content_stream(model="m", contents="hi", config=config)
    parts = [chunk.candidates[0].content.parts for chunk in stream]  # type: ignore[index,union-attr]
    assert [len(part or ()) for part in parts] == [1, 1, 1, 1, 1]


def test_without_server_sent_events_a_stream_is_a_json_array(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, ""),
        *deltas(turn, "he"),
        finished(turn),
    ]
    answer = http.post(
        f"{gateway.url}/v1beta/models/m:streamGenerateContent",
        headers={"x-goog-api-key": gateway.keys.session_key(session)},
        json=BODY,
    )
    assert answer.headers["content-type"] == "application/json"
    said = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in answer.json()]
    assert "".join(said) == "hello"


def test_tokens_of_a_prompt_are_counted(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    assert client.models.count_tokens(model="m", contents="hi").total_tokens == 1
    asked = manager.await_command(CountTokens, session)
    assert asked.messages == (b'{"content":"hi","role":"user"}',)


def test_models_are_listed(client: genai.Client) -> None:
    assert [model.name for model in client.models.list()] == ["models/policy"]
    assert client.models.get(model="policy").display_name == "policy"
    with pytest.raises(errors.ClientError, match="there is no model 'other'"):
        client.models.get(model="other")


@pytest.mark.parametrize(
    ("status", "reason", "name"),
    [
        (400, "prompt_too_long", "INVALID_ARGUMENT"),
        (409, "session_closed", "ABORTED"),
        (429, "too_many_turns", "RESOURCE_EXHAUSTED"),
        (503, "no_worker", "UNAVAILABLE"),
        (504, "deadline", "DEADLINE_EXCEEDED"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_has_its_status_streamed_or_not(
    client: genai.Client,
    manager: ScriptedManager,
    session: str,
    stream: bool,
    status: int,
    reason: str,
    name: str,
) -> None:
    manager.scripts[session] = lambda turn: [
        answered(turn, status, reason, turn_id=turn.turn_id, detail="in words")
    ]
    with pytest.raises(errors.APIError) as raised:
        if stream:
            list(client.models.generate_content_stream(model="m", contents="hi"))
        else:
            client.models.generate_content(model="m", contents="hi")
    assert (raised.value.code, raised.value.status) == (status, name)
    assert raised.value.message == "in words"


def test_a_stream_that_fails_after_it_began_ends_with_an_error(
    client: genai.Client, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, "he"),
        finished(turn, status=504, reason="deadline"),
    ]
    texts = []
    with pytest.raises(errors.APIError) as raised:
        for chunk in client.models.generate_content_stream(model="m", contents="hi"):
            texts.append(chunk.text)
    assert texts == ["he"]
    assert raised.value.status == "DEADLINE_EXCEEDED"


def test_what_is_not_supported_is_refused_by_name(client: genai.Client) -> None:
    search = types.Tool(google_search=types.GoogleSearch())
    with pytest.raises(errors.ClientError, match=r"tools\[0\]\.googleSearch") as raised:
        client.models.generate_content(
            model="m", contents="hi", config=types.GenerateContentConfig(tools=[search])
        )
    assert (raised.value.code, raised.value.status) == (400, "INVALID_ARGUMENT")
    with pytest.raises(errors.ClientError) as raised:
        client.models.embed_content(model="m", contents="hi")
    assert (raised.value.code, raised.value.status) == (404, "NOT_FOUND")


def test_a_key_in_the_url_is_taken_and_written_nowhere(
    prefixed: KafkaSettings,
    manager: ScriptedManager,
    session: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with gateway_process(prefixed, stream_keep_alive_s=1) as running:
        key = running.keys.session_key(session)
        url = f"{running.url}/v1beta/models/m"
        assert http.post(f"{url}:generateContent?key={key}", json=BODY).status_code == 200
        for wrong in (f"{url}:generateContent?key=sf-wrong", f"{url}:generateContent?key=%ff"):
            refused = http.post(wrong, json=BODY)
            assert refused.json()["error"]["status"] == "UNAUTHENTICATED"
            assert "sf-wrong" not in refused.text
        assert http.post(f"{url}:other?key={key}", json=BODY).status_code == 404
        metrics = http.get(f"{running.url}/metrics").text
        plain = http.post(f"{running.url}/v1/chat/completions?key={key}", json=BODY)
        assert plain.status_code == 401
    output = capfd.readouterr()
    for written in (output.out, output.err, metrics, repr(manager.find(RequestTurn, session))):
        assert key not in written
