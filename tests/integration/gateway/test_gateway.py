"""The gateway before the official client: real Kafka, real process, a manager with a script."""

import asyncio
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import orjson
import pytest

from infra.settings import KafkaSettings
from schemas.records import (
    AssignReward,
    CancelTurn,
    CloseSession,
    OpenSession,
    Record,
    RequestTurn,
    Sampling,
)
from tests.integration.gateway.gateway_double import (
    DEADLINE_S,
    GatewayProcess,
    ScriptedManager,
    answered,
    deltas,
    finished,
    gateway_process,
)

USER: Any = {"role": "user", "content": "hi"}
CALL = {"id": "call_x_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def gateway(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    with gateway_process(prefixed, disconnect_grace_s=0.5, max_body_bytes=200_000) as running:
        yield running


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
    async def talk() -> set[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session)
        ) as client:
            calls = [client.chat.completions.create(model="m", messages=[USER]) for _ in range(100)]
            return {answer.id for answer in await asyncio.gather(*calls)}

    assert len(asyncio.run(talk())) == 100


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
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert manager.await_command(RequestTurn, session).stream


def test_the_asynchronous_client_streams(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [*deltas(turn, "a", "b"), finished(turn, "abc")]

    async def talk() -> str:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session)
        ) as client:
            stream = await client.chat.completions.create(model="m", messages=[USER], stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(talk()) == "abc"


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


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (400, "bad_request", openai.BadRequestError),
        (404, "unknown_session", openai.NotFoundError),
        (409, "session_closed", openai.ConflictError),
        (429, "too_many_turns", openai.RateLimitError),
        (500, "internal_error", openai.InternalServerError),
        (504, "deadline", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_has_its_status_streamed_or_not(
    client: openai.OpenAI,
    manager: ScriptedManager,
    session: str,
    stream: bool,
    status: int,
    reason: str,
    error: type[openai.APIStatusError],
) -> None:
    manager.scripts[session] = lambda turn: [
        answered(turn, status, reason, turn_id=turn.turn_id, detail="in words")
    ]
    with pytest.raises(error) as raised:
        client.chat.completions.create(model="m", messages=[USER], stream=stream)
    assert raised.value.status_code == status
    assert raised.value.code == reason
    assert raised.value.body["message"] == "in words"  # type: ignore[index]


def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_openai(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    detail = "the prompt has 9 tokens, the context holds 8 with the answer"
    manager.scripts[session] = lambda turn: [
        answered(turn, 400, "prompt_too_long", turn_id=turn.turn_id, detail=detail)
    ]
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8") as raised:
        client.chat.completions.create(model="m", messages=[USER])
    assert raised.value.code == "context_length_exceeded"


def test_what_an_engine_cannot_do_is_said_in_the_shape_of_openai(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    detail = "this engine has no structured output: answers are plain text"
    manager.scripts[session] = lambda turn: [
        finished(turn, message={}, status=400, reason="bad_request", detail=detail)
    ]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="no structured output") as raised:
            client.chat.completions.create(
                model="m",
                messages=[USER],
                stream=stream,
                response_format={"type": "json_object"},
            )
        assert (raised.value.type, raised.value.param) == (
            "invalid_request_error",
            "response_format",
        )
    turn = manager.await_command(RequestTurn, session)
    assert turn.sampling.json_schema == '{"type":"object"}'


def test_a_turn_that_fails_has_its_status(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        finished(turn, message={}, status=503, reason="no_worker", detail="all are away")
    ]
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model="m", messages=[USER])
    assert raised.value.status_code == 503


def test_a_stream_that_fails_after_it_began_ends_with_an_error(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, "he"),
        finished(turn, status=504, reason="deadline"),
    ]
    texts = []
    with pytest.raises(openai.APIError, match="deadline"):
        for chunk in client.chat.completions.create(model="m", messages=[USER], stream=True):
            texts.append(chunk.choices[0].delta.content)
    assert "".join(text or "" for text in texts) == "he"


def test_a_closed_session_is_not_tried_again(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [answered(turn, 409, "session_closed")]
    key = gateway.keys.session_key(session)
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=3)
    with client, pytest.raises(openai.ConflictError):
        client.chat.completions.create(model="m", messages=[USER])
    assert len(manager.find(RequestTurn, session)) == 1


def test_a_call_cut_by_the_end_of_a_session_that_begins_by_itself_is_tried_in_the_next(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    closed = iter([True])
    manager.scripts[session] = lambda turn: [
        finished(turn, status=409, reason="session_closed")
        if next(closed, False)
        else finished(turn, "hello")
    ]
    client = openai.OpenAI(
        base_url=f"{gateway.url}/v1",
        api_key=gateway.admin["authorization"].removeprefix("Bearer "),
        default_headers={"x-session-id": session},
        max_retries=1,
    )
    with client:
        answer = client.chat.completions.create(model="m", messages=[USER])
    assert answer.choices[0].message.content == "hello"


def test_a_key_that_was_not_given_out_is_refused(gateway: GatewayProcess) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-no", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="m", messages=[USER])
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_a_stream_that_waits_for_long_is_kept_alive(
    prefixed: KafkaSettings, manager: ScriptedManager, session: str
) -> None:
    asked = threading.Event()
    manager.scripts[session] = lambda turn: (
        [finished(turn, "late")] if asked.wait(DEADLINE_S) else []
    )
    with gateway_process(prefixed, stream_keep_alive_s=0.2) as patient:
        body = {"model": "m", "messages": [USER], "stream": True}
        headers = {"authorization": f"Bearer {patient.keys.session_key(session)}"}
        url = f"{patient.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=DEADLINE_S) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            asked.set()
            rest = "".join(lines)
    assert first == ": keep-alive"
    assert "late" in rest and rest.endswith("data: [DONE]")


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["policy"]


def test_a_model_is_known_by_its_name(client: openai.OpenAI) -> None:
    assert client.models.retrieve("policy").id == "policy"
    with pytest.raises(openai.NotFoundError, match="there is no model 'org/other'") as refused:
        client.models.retrieve("org/other")
    assert refused.value.code == "model_not_found"


def test_a_session_is_opened_used_rewarded_and_closed(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.admin) as admin:
        opened = admin.post(
            "/sessions",
            json={
                "session_id": session,
                "policy": "p",
                "task_id": "t",
                "group_id": "g",
                "sample": 1,
                "group_size": 8,
                "pinned_version": 2,
                "metadata": {"a": "b"},
                "max_age_s": 60,
            },
        )
        assert opened.status_code == 201
        access = opened.json()
        with openai.OpenAI(base_url=access["base_url"], api_key=access["api_key"]) as client:
            answer = client.chat.completions.create(model="m", messages=[USER])
        reward = {"value": 0.5, "name": "quality", "turn": answer.id, "final": False}
        assert admin.post(f"/sessions/{session}/reward", json=reward).status_code == 200
        close = {"status": "truncated", "reason": "turns", "await_reward_s": 1.5}
        assert admin.post(f"/sessions/{session}/close", json=close).status_code == 200
    command = manager.await_command(OpenSession, session)
    assert (command.policy, command.sample, command.pinned_version) == ("p", 1, 2)
    assert (command.metadata, command.max_age_ms) == ({"a": "b"}, 60_000)
    assigned = manager.await_command(AssignReward, session)
    turn = manager.await_command(RequestTurn, session)
    assert (assigned.reward.turn_id, assigned.reward.scope) == (turn.turn_id, "turn")
    assert (assigned.reward.value, assigned.final) == (0.5, False)
    closed = manager.await_command(CloseSession, session)
    assert (closed.status, closed.await_reward_ms) == ("truncated", 1500)


@pytest.mark.parametrize("done", ["reward", "close"])
def test_what_is_done_by_name_is_answered_with_the_session_s_own_id(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, done: str
) -> None:
    manager.ids[session] = f"{session}~1"
    path = f"{gateway.url}/sessions/{session}/{done}"
    answer = httpx.post(path, headers=gateway.admin, json={"value": 1} if done == "reward" else {})
    assert answer.json() == {"session_id": f"{session}~1"}


def test_a_session_without_a_name_gets_one(gateway: GatewayProcess) -> None:
    opened = httpx.post(f"{gateway.url}/sessions", headers=gateway.admin, json={"policy": "p"})
    access = opened.json()
    assert gateway.keys.session_of(access["api_key"].encode()) == access["session_id"]


def test_the_session_interface_says_why_it_refuses(gateway: GatewayProcess, session: str) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.admin) as admin:
        refused = admin.post("/sessions", json={"policy": "unknown"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unknown_policy"
        wrong = admin.post("/sessions", json={"policy": "p", "sample": -1})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "sample"
        assert admin.post("/sessions", json={"policy": "p", "typo": 1}).status_code == 400
        assert admin.post("/sessions", content=b"{").status_code == 400
        assert admin.post(f"/sessions/{session}/reward", json={}).status_code == 400
        nan = admin.post(f"/sessions/{session}/reward", content=b'{"value": NaN}')
        assert nan.status_code == 400
    own = gateway.bearing(session)
    for path in (f"/sessions/{session}/reward", f"/sessions/{session}/close", "/sessions"):
        assert httpx.post(gateway.url + path, headers=own, json={}).status_code == 403
        assert httpx.post(gateway.url + path, json={}).status_code == 401


def test_the_admin_key_may_speak_for_a_session(gateway: GatewayProcess, session: str) -> None:
    body = {"model": "m", "messages": [USER]}
    path = f"{gateway.url}/sessions/{session}/v1/chat/completions"
    assert httpx.post(path, headers=gateway.admin, json=body).status_code == 200
    assert httpx.post(path, headers=gateway.bearing("other"), json=body).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 50_000,
        b'{"model": "m", "messages": ' + b"[" * 50_000,
    ],
    ids=["empty", "cut", "invalid utf-8", "lone surrogate", "deep", "deep inside"],
)
def test_a_malformed_body_is_refused(gateway: GatewayProcess, session: str, body: bytes) -> None:
    path = f"{gateway.url}/v1/chat/completions"
    answer = httpx.post(path, headers=gateway.bearing(session), content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_wrong_parameter_is_named(client: openai.OpenAI) -> None:
    image: Any = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": [image]}], temperature=1
        )
    assert raised.value.param == "messages[0].content[0]"
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="m", messages=[USER], temperature=3)
    assert raised.value.param == "temperature"


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_a_body_over_the_limit_is_refused(
    gateway: GatewayProcess, session: str, announced: bool
) -> None:
    body = b" " * 200_001
    answer = httpx.post(
        f"{gateway.url}/v1/chat/completions",
        headers=gateway.bearing(session),
        content=body if announced else iter([body[:100_000], body[100_000:]]),
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


def test_unknown_paths_and_methods_are_refused(gateway: GatewayProcess) -> None:
    assert httpx.get(f"{gateway.url}/v2").status_code == 404
    assert httpx.get(f"{gateway.url}/sessions/x/other").status_code == 404
    assert httpx.get(f"{gateway.url}/v1/chat/completions").status_code == 405
    refused = httpx.post(f"{gateway.url}/health")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_a_head_is_a_get_without_its_body(gateway: GatewayProcess, path: str) -> None:
    with httpx.Client(base_url=gateway.url) as client:
        for _ in range(2):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")


def test_it_tells_how_it_is(gateway: GatewayProcess) -> None:
    assert httpx.get(f"{gateway.url}/health").json() == {"status": "alive"}
    assert httpx.get(f"{gateway.url}/ready").json() == {"status": "ready"}
    metrics = httpx.get(f"{gateway.url}/metrics").text
    assert 'seamlessflow_gateway_requests_total{route="ready",status="200"}' in metrics
    assert "process_cpu_seconds_total" in metrics


def test_a_turn_whose_client_left_is_cancelled(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: []
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(model="m", messages=[USER])
    turn = manager.await_command(RequestTurn, session)
    cancel = manager.await_command(CancelTurn, session)
    assert (cancel.turn_id, cancel.reason) == (turn.turn_id, "client_gone")


def test_a_stream_whose_client_left_is_cancelled(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: deltas(turn, "he")
    stream = client.chat.completions.create(model="m", messages=[USER], stream=True)
    next(stream)
    stream.close()
    turn = manager.await_command(RequestTurn, session)
    assert manager.await_command(CancelTurn, session).turn_id == turn.turn_id


def test_a_retry_joins_the_turn_and_nothing_is_cancelled(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    first: list[RequestTurn] = []

    def script(turn: RequestTurn) -> list[Record]:
        if not first:
            first.append(turn)
            return []
        assert turn.retry_count == 1
        assert turn.body_hash == first[0].body_hash
        return [answered(turn, turn_id=first[0].turn_id)]

    manager.scripts[session] = script
    path, headers = f"{gateway.url}/v1/chat/completions", gateway.bearing(session)
    body = {"model": "m", "messages": [USER]}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(path, headers=headers, json=body, timeout=0.2)
    again = {**headers, "x-stainless-retry-count": "1"}
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(httpx.post, path, headers=again, json=body, timeout=DEADLINE_S)
        manager.await_command(RequestTurn, session, 2)
        # Left later than the first call, so that one's grace time is over when this one's is.
        other = f"{session}-later"
        manager.scripts[other] = lambda turn: []
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(path, headers=gateway.bearing(other), json=body, timeout=0.2)
        manager.await_command(CancelTurn, other)
        manager.send(first[0].reply, finished(first[0], "at last"))
        answer = call.result(DEADLINE_S)
    assert answer.json()["choices"][0]["message"]["content"] == "at last"
    assert manager.find(CancelTurn, session) == []


def test_an_idempotency_key_is_handed_on(
    client: openai.OpenAI, manager: ScriptedManager, session: str
) -> None:
    client.chat.completions.create(
        model="m", messages=[USER], n=2, extra_headers={"Idempotency-Key": "k"}
    )
    turns = [manager.await_command(RequestTurn, session, number) for number in (1, 2)]
    assert {(turn.idempotency_key, turn.choice) for turn in turns} == {("k", 0), ("k", 1)}


def test_damaged_requests_do_no_harm(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, rng: random.Random
) -> None:
    place = httpx.URL(gateway.url)
    body = orjson.dumps({"model": "m", "messages": [USER], "stream": True})
    token = gateway.keys.session_key(session)
    whole = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n"
        b"x-stainless-retry-count: 1\r\ncontent-length: %d\r\n\r\n%b"
    ) % (token.encode(), len(body), body)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with socket.create_connection((place.host, place.port or 0), DEADLINE_S) as connection:
            connection.sendall(damaged)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            assert not answer.startswith(b"HTTP/1.1 500")
    assert httpx.get(f"{gateway.url}/health").status_code == 200
