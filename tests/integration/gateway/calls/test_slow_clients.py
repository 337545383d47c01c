"""Clients that read their answers slowly, or make calls faster than they read answers."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import CancelTurn, CountTokens, RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    deltas,
    finished,
    gateway_process,
)
from tests.builders.resident_memory import NOW, resident
from tests.waiting import until

CHAT, COUNT = "/v1/chat/completions", "/v1/messages/count_tokens"
BODY = {"model": "m", "messages": [USER]}
PIECE, PIECES = "~" * 100_000, 80
SIP = 64 * 1024
END = b"0\r\n\r\n"
MOST_HELD = 8 * len(PIECE) * PIECES
"""Most bytes that one unread answer may take: its replies, its events and the copies of these."""


@pytest.fixture(scope="module")
def brief(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    """Run a gateway on which no call takes long."""
    with gateway_process(prefixed, turn_timeout_s=1, disconnect_grace_s=0) as running:
        yield running


@contextmanager
def connected(gateway: GatewayProcess) -> Iterator[socket.socket]:
    """Yield a connection whose kernel keeps little of what the client has not read."""
    place = urlsplit(gateway.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SIP)
        client.settimeout(DEADLINE_S)
        client.connect((place.hostname or "", place.port or 0))
        yield client


def request(gateway: GatewayProcess, session: str, path: str = CHAT, **more: object) -> bytes:
    body = json.dumps(BODY | more)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {gateway.keys.session_key(session)}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    )
    return head.encode()


def chat(gateway: GatewayProcess, session: str) -> int:
    headers = gateway.bearing(session)
    answer = http.post(f"{gateway.url}{CHAT}", headers=headers, json=BODY, timeout=DEADLINE_S)
    return answer.status_code


def in_flight(gateway: GatewayProcess) -> float:
    lines = http.get(f"{gateway.url}/metrics").text.splitlines()
    name = "seamlessflow_gateway_in_flight "
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


def memory(gateway: GatewayProcess) -> int:
    """Return the bytes of memory that the gateway's process has."""
    return resident(NOW, gateway.process.pid)


def test_a_client_that_reads_slowly_gets_its_whole_answer_and_slows_no_other(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [*deltas(turn, *[PIECE] * PIECES), finished(turn)]
    with connected(gateway) as client:
        assert chat(gateway, "other") == 200
        before, answer = memory(gateway), bytearray()
        client.sendall(request(gateway, session, stream=True))
        manager.await_command(RequestTurn, session)
        while not answer.endswith(END):
            # The manager's replies come in order: once this call is answered, the gateway has the
            # whole answer of the slow client, who has read some sips of it.
            assert chat(gateway, "other") == 200
            assert memory(gateway) - before < MOST_HELD
            for _ in range(5):
                answer += b"" if answer.endswith(END) else client.recv(SIP)
    assert answer.count(b"~") == len(PIECE) * PIECES


def test_a_client_that_leaves_before_it_has_read_a_whole_answer_did_not_get_its_turn(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [*deltas(turn, *[PIECE] * PIECES), finished(turn)]
    with connected(gateway) as client:
        client.sendall(request(gateway, session, stream=True))
        turn = manager.await_command(RequestTurn, session)
        assert client.recv(SIP)
        # Its answer is behind that of the slow client, whose answer the gateway has then.
        assert chat(gateway, "other") == 200
    assert manager.await_command(CancelTurn, session).turn_id == turn.turn_id


def test_a_turn_behind_an_answer_that_is_not_read_ends_in_time_as_undelivered(
    brief: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, PIECE * PIECES)]
    behind = f"{session}-behind"
    with connected(brief) as client:
        client.sendall(request(brief, session) + request(brief, behind))
        turn = manager.await_command(RequestTurn, behind)
        assert manager.await_command(CancelTurn, behind).turn_id == turn.turn_id
        until(lambda: in_flight(brief) == 0, "its place")


def test_a_question_behind_an_answer_that_is_not_read_gives_its_place_back(
    brief: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    manager.scripts[session] = lambda turn: [finished(turn, PIECE * PIECES)]
    behind = f"{session}-behind"
    with connected(brief) as client:
        client.sendall(request(brief, session) + request(brief, behind, COUNT))
        manager.await_command(CountTokens, behind)
        until(lambda: in_flight(brief) == 0, "its place")
