"""Clients that leave or retry: real Kafka, a real gateway, a scripted manager."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import (
    CancelTurn,
    Record,
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
from tests.waiting import until


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


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_turn_that_completes_after_its_client_left_is_reported(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, stream: bool
) -> None:
    manager.scripts[session] = lambda turn: []
    path, body = f"{gateway.url}/v1/chat/completions", {"messages": [USER], "stream": stream}
    with pytest.raises(httpx.ReadTimeout):
        http.post(path, headers=gateway.bearing(session), json={"model": "m", **body}, timeout=0.2)
    turn = manager.await_command(RequestTurn, session)
    manager.send(turn.reply, *deltas(turn, "he"), finished(turn, "hello"))

    report = manager.await_command(CancelTurn, session)

    assert (report.turn_id, report.reply) == (turn.turn_id, turn.reply)
    assert "seamlessflow_gateway_turns_undelivered_total" in metrics(gateway)


def test_it_is_reported_as_soon_as_it_completes_and_once(
    prefixed: KafkaSettings, manager: ScriptedManager, session: str
) -> None:
    """The agent may reward and close the session long before the grace time is over."""
    manager.scripts[session] = lambda turn: []
    with gateway_process(prefixed, disconnect_grace_s=600) as gateway:
        path, body = f"{gateway.url}/v1/chat/completions", {"model": "m", "messages": [USER]}
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, headers=gateway.bearing(session), json=body, timeout=0.2)
        until(lambda: "seamlessflow_gateway_in_flight 0" in metrics(gateway), "the call to end")
        turn = manager.await_command(RequestTurn, session)
        manager.send(turn.reply, finished(turn, "hello"), finished(turn, "hello"))

        report = manager.await_command(CancelTurn, session)

        assert (report.turn_id, report.reason) == (turn.turn_id, "client_gone")
        assert "seamlessflow_gateway_turns_undelivered_total 1" in metrics(gateway)
        http.post(path, headers=gateway.bearing(f"{session}-2"), json=body).raise_for_status()
        assert manager.find(CancelTurn, session) == [report]


def metrics(gateway: GatewayProcess) -> str:
    return http.get(f"{gateway.url}/metrics").text


def test_a_turn_that_a_retry_got_counts_as_delivered(
    prefixed: KafkaSettings, manager: ScriptedManager, session: str
) -> None:
    first: list[RequestTurn] = []

    def script(turn: RequestTurn) -> list[Record]:
        if not first:
            first.append(turn)
            return []
        return [answered(turn, turn_id=first[0].turn_id), finished(first[0], "at last")]

    manager.scripts[session] = script
    # The retry has to come within this time, also on a busy machine.
    with gateway_process(prefixed, disconnect_grace_s=4) as gateway:
        path, headers = f"{gateway.url}/v1/chat/completions", gateway.bearing(session)
        body = {"model": "m", "messages": [USER]}
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, headers=headers, json=body, timeout=0.2)
        again = {**headers, "x-stainless-retry-count": "1"}
        assert http.post(path, headers=again, json=body, timeout=DEADLINE_S).status_code == 200
        # Left later than the first call, so that one's grace time is over when this one's is.
        other = f"{session}-later"
        manager.scripts[other] = lambda turn: []
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, headers=gateway.bearing(other), json=body, timeout=0.2)
        manager.await_command(CancelTurn, other)

        assert manager.find(CancelTurn, session) == []


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
        http.post(path, headers=headers, json=body, timeout=0.2)
    again = {**headers, "x-stainless-retry-count": "1"}
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(http.post, path, headers=again, json=body, timeout=DEADLINE_S)
        manager.await_command(RequestTurn, session, 2)
        # Left later than the first call, so that one's grace time is over when this one's is.
        other = f"{session}-later"
        manager.scripts[other] = lambda turn: []
        with pytest.raises(httpx.ReadTimeout):
            http.post(path, headers=gateway.bearing(other), json=body, timeout=0.2)
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
