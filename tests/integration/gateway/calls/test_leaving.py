"""A gateway that is asked to end, alone or beside another one on the same port."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    finished,
    gateway_process,
)
from tests.waiting import PATIENCE_S, until

BODY = {"model": "m", "messages": [USER]}
CALLS = 40


def chat(client: httpx.Client, gateway: GatewayProcess, session: str) -> httpx.Response:
    return client.post(
        f"{gateway.url}/v1/chat/completions", headers=gateway.bearing(session), json=BODY
    )


def refuses(gateway: GatewayProcess) -> bool:
    try:
        http.get(f"{gateway.url}/ready")
    except httpx.TransportError:
        return True
    return False


def not_ready(gateway: GatewayProcess) -> bool:
    return http.get(f"{gateway.url}/ready").status_code == 503


def called(gateway: GatewayProcess, manager: ScriptedManager) -> int:
    """Call on a connection of its own; return the number of gateways that such calls reached."""
    with httpx.Client(timeout=PATIENCE_S) as client:
        chat(client, gateway, "probe")
    turns = manager.find(RequestTurn, "probe")
    return len({turn.reply.gateway for turn in turns if turn.reply is not None})


def test_a_gateway_that_ends_finishes_its_calls_and_takes_no_more(
    prefixed: KafkaSettings, manager: ScriptedManager
) -> None:
    manager.scripts["last"] = lambda turn: []
    with (
        gateway_process(prefixed) as gateway,
        httpx.Client(timeout=DEADLINE_S) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        call = pool.submit(chat, client, gateway, "last")
        turn = manager.await_command(RequestTurn, "last")
        gateway.process.terminate()
        until(lambda: refuses(gateway), "the gateway to listen no more")
        manager.send(turn.reply, finished(turn))
        answer = call.result()
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert gateway.process.wait(DEADLINE_S) == 0


def test_a_gateway_that_leaves_takes_calls_but_is_not_ready_and_keeps_no_connection(
    prefixed: KafkaSettings, manager: ScriptedManager
) -> None:
    with (
        gateway_process(prefixed, leave_s=3) as gateway,
        httpx.Client(timeout=PATIENCE_S) as client,
    ):
        assert "connection" not in chat(client, gateway, "kept").headers
        gateway.process.terminate()
        until(lambda: not_ready(gateway), "the gateway to leave")
        answer = chat(client, gateway, "kept")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        opening = {"policy": "policy"}
        refused = client.post(f"{gateway.url}/sessions", json=opening, headers=gateway.admin)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert gateway.process.wait(DEADLINE_S) == 0


def test_one_of_two_gateways_on_a_port_ends_and_no_client_gets_an_error(
    prefixed: KafkaSettings, manager: ScriptedManager
) -> None:
    """The client is OpenAI's with its own retries."""
    port = free_port()
    with gateway_process(prefixed, port=port, reuse_port=True) as first:

        def ask(session: str) -> set[str | None]:
            """Call until the first gateway has ended; return the different answers."""
            key = first.keys.session_key(session)
            with openai.OpenAI(base_url=f"{first.url}/v1", api_key=key, timeout=30) as client:
                asked = client.chat.completions.create
                answers: list[str | None] = []
                while first.process.poll() is None or len(answers) < CALLS:
                    answer = asked(model="m", messages=[USER])
                    answers.append(answer.choices[0].message.content)
            return set(answers)

        with gateway_process(prefixed, port=port, reuse_port=True), ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(ask, f"shared-{number}") for number in range(6)]
            manager.await_command(RequestTurn, "shared-0", 5)
            until(lambda: called(first, manager) == 2, "both gateways to listen")
            first.process.terminate()
            assert [call.result() for call in calls] == [{"hello"}] * 6
        assert first.process.wait(DEADLINE_S) == 0
