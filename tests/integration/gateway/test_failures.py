"""Chat calls that fail or are refused: real Kafka, a real gateway, a scripted manager."""

import random
import socket
import threading
from typing import Any

import httpx
import openai
import orjson
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import (
    RequestTurn,
)
from tests import http
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    answered,
    deltas,
    finished,
    gateway_process,
)


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
        with http.stream("POST", url, json=body, headers=headers, timeout=DEADLINE_S) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            asked.set()
            rest = "".join(lines)
    assert first == ": keep-alive"
    assert "late" in rest and rest.endswith("data: [DONE]")


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
    answer = http.post(path, headers=gateway.bearing(session), content=body)
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
    answer = http.post(
        f"{gateway.url}/v1/chat/completions",
        headers=gateway.bearing(session),
        content=body if announced else iter([body[:100_000], body[100_000:]]),
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


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
    assert http.get(f"{gateway.url}/health").status_code == 200
