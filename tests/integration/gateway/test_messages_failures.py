"""Calls of Anthropic's client that fail or are refused: real Kafka, a scripted manager."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from seamlessflow.schemas.records import CancelTurn, Record, RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    USER,
    GatewayProcess,
    ScriptedManager,
    answered,
    deltas,
    finished,
)

ASKED: Any = {"model": "m", "max_tokens": 9, "messages": [USER]}


@pytest.fixture
def client(gateway: GatewayProcess, session: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=gateway.url, api_key=gateway.keys.session_key(session), max_retries=0
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("status", "reason", "error", "kind"),
    [
        (400, "prompt_too_long", anthropic.BadRequestError, "invalid_request_error"),
        (404, "unknown_session", anthropic.NotFoundError, "not_found_error"),
        (409, "session_closed", anthropic.ConflictError, "conflict_error"),
        (429, "too_many_turns", anthropic.RateLimitError, "rate_limit_error"),
        (500, "internal_error", anthropic.InternalServerError, "api_error"),
        (503, "no_worker", anthropic.InternalServerError, "overloaded_error"),
        (504, "deadline", anthropic.InternalServerError, "timeout_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_has_its_status_streamed_or_not(
    client: anthropic.Anthropic,
    manager: ScriptedManager,
    session: str,
    stream: bool,
    status: int,
    reason: str,
    error: type[anthropic.APIStatusError],
    kind: str,
) -> None:
    manager.scripts[session] = lambda turn: [
        answered(turn, status, reason, turn_id=turn.turn_id, detail="in words")
    ]
    with pytest.raises(error) as raised:
        client.messages.create(**ASKED, stream=stream)
    failure = raised.value
    assert (failure.status_code, failure.type, failure.api_message) == (status, kind, "in words")
    assert failure.error_code == reason
    turn = manager.await_command(RequestTurn, session)
    assert failure.request_id == failure.body["request_id"] == turn.turn_id  # type: ignore[index]


def test_a_stream_that_fails_after_it_began_ends_with_an_error(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [
        *deltas(turn, "he"),
        finished(turn, status=504, reason="deadline"),
    ]
    texts = []
    with (
        pytest.raises(anthropic.APIStatusError) as raised,
        client.messages.stream(**ASKED) as stream,
    ):
        for text in stream.text_stream:
            texts.append(text)
    assert "".join(texts) == "he"
    assert (raised.value.type, raised.value.error_code) == ("timeout_error", "deadline")


def test_an_error_before_there_is_a_turn_names_the_call(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.messages.create(model="m", max_tokens=0, messages=[USER])
    failure = raised.value
    assert failure.request_id == failure.body["request_id"]  # type: ignore[index]
    assert str(failure.request_id).startswith("req_")


def test_other_paths_answer_this_client_in_its_shape(client: anthropic.Anthropic) -> None:
    for ask in (client.messages.batches.list, client.beta.files.list):
        with pytest.raises(anthropic.NotFoundError) as raised:
            ask()
        assert raised.value.type == "not_found_error"
    with pytest.raises(anthropic.NotFoundError, match="there is no model 'other'") as raised:
        client.models.retrieve("other")
    assert raised.value.type == "not_found_error"


def test_a_retry_is_told_from_a_first_try(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    def script(turn: RequestTurn) -> list[Record]:
        if turn.retry_count == 0:
            return [answered(turn, 503, "no_worker", turn_id=turn.turn_id)]
        return [finished(turn)]

    manager.scripts[session] = script
    key = gateway.keys.session_key(session)
    with anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=2) as client:
        assert client.messages.create(**ASKED).stop_reason == "end_turn"
    first, second = (manager.await_command(RequestTurn, session, n) for n in (1, 2))
    assert (first.retry_count, second.retry_count) == (0, 1)
    assert first.body_hash == second.body_hash


def test_a_closed_session_is_not_tried_again(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [answered(turn, 409, "session_closed")]
    key = gateway.keys.session_key(session)
    client = anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=3)
    with client, pytest.raises(anthropic.ConflictError):
        client.messages.create(**ASKED)
    assert len(manager.find(RequestTurn, session)) == 1


def test_a_key_that_was_not_given_out_is_refused(gateway: GatewayProcess) -> None:
    with anthropic.Anthropic(base_url=gateway.url, api_key="sk-no", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError) as raised:
            client.messages.create(**ASKED)
        assert raised.value.type == "authentication_error"
        with pytest.raises(anthropic.AuthenticationError) as raised:
            client.messages.count_tokens(model="m", messages=[USER])
        assert raised.value.type == "authentication_error"


def test_what_a_text_model_cannot_take_is_named(client: anthropic.Anthropic) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    image: Any = {"type": "image", "source": source}
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": [image]}]
        )
    assert "messages.0.content.0 is of type 'image'" in str(raised.value.api_message)


def test_too_large_a_body_is_refused(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "x" * 200_000}]
        )
    assert raised.value.status_code == 413
    assert raised.value.body["error"]["type"] == "request_too_large"  # type: ignore[index]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "\xff"}', b"[" * 50_000])
def test_a_malformed_body_is_refused(
    gateway: GatewayProcess, session: str, path: str, body: bytes
) -> None:
    key = {"x-api-key": gateway.keys.session_key(session)}
    answer = http.post(gateway.url + path, headers=key, content=body)
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert http.get(gateway.url + path, headers=key).status_code == 405


def test_a_call_whose_client_left_is_cancelled(
    client: anthropic.Anthropic, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: deltas(turn, "he")
    with client.messages.stream(**ASKED) as stream:
        next(stream.text_stream)
    turn = manager.await_command(RequestTurn, session)
    assert manager.await_command(CancelTurn, session).turn_id == turn.turn_id
