"""Calls over a limit, past a deadline (I8), of a newer release, or that no manager answers."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import RequestTurn
from tests import http
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    GatewayProcess,
    ScriptedManager,
    assert_told,
    deltas,
    finished,
    gateway_process,
)
from tests.builders.schemas.made_up import FIRST, copy_of_product
from tests.waiting import PATIENCE_S, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
IN_FLIGHT = "seamlessflow_gateway_in_flight "
ALIKE = {
    "chat/completions": BODY,
    "messages": BODY | {"max_tokens": 8},
    "responses": {"model": "m", "input": "hi"},
    "completions": {"model": "m", "prompt": "hi"},
}
"""A call in each protocol, by its path."""
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def narrow(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    """Run a gateway that accepts two calls at once and has short deadlines."""
    with gateway_process(
        prefixed,
        max_in_flight=2,
        max_in_flight_bytes=MEBIBYTE,
        turn_timeout_s=1.5,
        command_timeout_s=0.3,
        command_expiry_s=0.2,
        body_timeout_s=0.3,
    ) as running:
        yield running


def chat(gateway: GatewayProcess, session: str, size: int = 2) -> httpx.Response:
    """Make a call whose message has so many bytes."""
    return http.post(
        f"{gateway.url}/v1/chat/completions",
        headers=gateway.bearing(session),
        json={"model": "m", "messages": [{"role": "user", "content": "h" * size}]},
        timeout=DEADLINE_S,
    )


def answer_all(manager: ScriptedManager, session: str, number: int) -> None:
    manager.await_command(RequestTurn, session, number)
    for turn in manager.find(RequestTurn, session):
        manager.send(turn.reply, finished(turn))


def test_calls_over_the_limit_are_asked_to_come_again(
    narrow: GatewayProcess, manager: ScriptedManager
) -> None:
    manager.scripts["busy"] = lambda turn: []
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(chat, narrow, "busy") for _ in range(2)]
        manager.await_command(RequestTurn, "busy", 2)
        refused = chat(narrow, "busy")
        answer_all(manager, "busy", 2)
        assert [call.result().status_code for call in calls] == [200, 200]
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert chat(narrow, "free").status_code == 200


def test_bodies_over_the_limit_of_all_calls_are_asked_to_come_again(
    narrow: GatewayProcess, manager: ScriptedManager
) -> None:
    manager.scripts["large"] = lambda turn: []
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(chat, narrow, "large", MEBIBYTE * 2 // 3)
        manager.await_command(RequestTurn, "large")
        refused = chat(narrow, "free", MEBIBYTE // 2)
        answer_all(manager, "large", 1)
        assert call.result().status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "too_many_bytes"
    assert chat(narrow, "free", MEBIBYTE // 2).status_code == 200


def test_a_client_that_does_not_read_its_stream_keeps_its_place_until_its_deadline(
    narrow: GatewayProcess, manager: ScriptedManager
) -> None:
    place, text = urlsplit(narrow.url), "h" * 100_000
    manager.scripts["deaf"] = lambda turn: [*deltas(turn, *[text] * 100), finished(turn)]
    body = json.dumps(BODY | {"stream": True})
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {narrow.keys.session_key('deaf')}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    )
    with socket.create_connection((place.hostname or "", place.port or 0), DEADLINE_S) as deaf:
        deaf.sendall(head.encode())
        manager.await_command(RequestTurn, "deaf")
        assert chat(narrow, "free").status_code == 200
        port = deaf.getsockname()[1]
        until(lambda: not held(port), "the end of the connection")
        until(lambda: in_flight(narrow) == 0, "its place")


def held(port: int) -> bool:
    """Return True while a process has the other end of the connection from a port open."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    far_ends = ((row.split()[2], row.split()[9]) for row in rows)
    return any(far.endswith(f":{port:04X}") and inode != "0" for far, inode in far_ends)


def in_flight(gateway: GatewayProcess) -> float:
    lines = http.get(f"{gateway.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(IN_FLIGHT))


def test_a_turn_that_is_never_answered_ends_with_504(
    narrow: GatewayProcess, manager: ScriptedManager
) -> None:
    manager.scripts["silent"] = lambda turn: []
    late = chat(narrow, "silent")
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "timeout"


def test_a_body_that_does_not_come_ends_with_408(narrow: GatewayProcess) -> None:
    place = urlsplit(narrow.url)
    token = narrow.keys.session_key("slow")
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {token}\r\ncontent-length: 100\r\n\r\n{{"
    )
    with socket.create_connection((place.hostname or "", place.port or 0), DEADLINE_S) as slow:
        slow.sendall(head.encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_call_that_outlasts_the_shutdown_is_told_to_come_again(
    prefixed: KafkaSettings, manager: ScriptedManager
) -> None:
    manager.scripts["endless"] = lambda turn: []
    with (
        gateway_process(prefixed, shutdown_timeout_s=0.2) as gateway,
        ThreadPoolExecutor(1) as pool,
    ):
        call = pool.submit(chat, gateway, "endless")
        manager.await_command(RequestTurn, "endless")
        gateway.process.terminate()
        refused = call.result()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert gateway.process.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_without_kafka_calls_get_503_until_it_is_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        manager = ScriptedManager(broker.settings)
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with gateway_process(broker.settings, kafka_timeout_s=2) as gateway:
            assert chat(gateway, "s").status_code == 200
            broker.stop()
            assert chat(gateway, "s").status_code == 503
            until(
                lambda: http.get(f"{gateway.url}/ready").status_code == 503,
                "not ready",
            )
            refused = chat(gateway, "s")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            for path, body in ALIKE.items():
                other = http.post(
                    f"{gateway.url}/v1/{path}",
                    headers=gateway.bearing("s"),
                    json=body,
                )
                assert (other.status_code, other.headers["retry-after"]) == (503, "1")
                assert_told(other, f"/v1/{path}")
            assert http.get(f"{gateway.url}/health").status_code == 200
            with Broker(tmp_path / "kafka", port, java=SHORT_LIVED):
                until(
                    lambda: http.get(f"{gateway.url}/ready").status_code == 200,
                    "ready",
                )
                until(lambda: chat(gateway, "s").status_code == 200, "an answer")
                manager.close()


def test_a_gateway_without_kafka_does_not_start(tmp_path: Path) -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1", wait_s=0.5)
    with (
        pytest.raises(AssertionError, match="the gateway ended"),
        gateway_process(nowhere),
    ):
        pass


def test_a_call_that_the_older_release_has_no_field_for_is_refused_alone(
    prefixed: KafkaSettings,
    manager: ScriptedManager,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    copy_of_product(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__WRITE_RELEASE", FIRST)
    with (
        gateway_process(prefixed) as gateway,
        httpx.Client(base_url=gateway.url, headers=gateway.admin, timeout=PATIENCE_S) as admin,
    ):
        keyed = {"Idempotency-Key": "again"}
        refused = admin.post("/sessions", json={"policy": "p"}, headers=keyed)
        opened = admin.post("/sessions", json={"policy": "p"})

    assert refused.status_code == 501, refused.text
    assert refused.json()["error"]["code"] == "upgrade_under_way"
    assert "OpenSession.idempotency_key is set" in refused.text
    assert opened.status_code == 201, opened.text
