"""Malformed calls to a real gateway: each gets a clear answer and harms no other call."""

import gzip
import socket
from collections.abc import Iterator

import httpx
import orjson
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import RequestTurn
from tests import http
from tests.builders.gateway.bodies import BODIES
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    assert_told,
    gateway_process,
)

BODY = {"model": "m", "messages": [USER]}
CHAT = "/v1/chat/completions"
LIMIT = 200_000


@pytest.fixture(scope="module")
def gateway(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    with gateway_process(prefixed, max_body_bytes=LIMIT, body_timeout_s=0.5) as running:
        yield running


def raw_answer(gateway: GatewayProcess, *parts: bytes) -> bytes:
    """Return the gateway's answer to raw bytes, which no HTTP client would send."""
    place = httpx.URL(gateway.url)
    with socket.create_connection((place.host, place.port or 0), DEADLINE_S) as connection:
        connection.settimeout(DEADLINE_S)
        for part in parts:
            connection.sendall(part)
        return connection.recv(65_536)


def whole_answer(gateway: GatewayProcess, data: bytes) -> bytes:
    """Return the answer to raw bytes, up to the end of the connection."""
    place = httpx.URL(gateway.url)
    with socket.create_connection((place.host, place.port or 0), DEADLINE_S) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def head(gateway: GatewayProcess, session: str, *lines: str) -> bytes:
    token = gateway.keys.session_key(session)
    begin = [f"POST {CHAT} HTTP/1.1", "host: x", f"authorization: Bearer {token}"]
    return "\r\n".join([*begin, *lines, "", ""]).encode()


@pytest.mark.parametrize("length", ["content-length: 100", "transfer-encoding: chunked"])
def test_a_body_of_which_nothing_comes_ends_with_408(
    gateway: GatewayProcess, session: str, length: str
) -> None:
    answer = raw_answer(gateway, head(gateway, session, length))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"type":"timeout_error"' in answer


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "gzip, identity"])
def test_an_encoded_body_is_refused(gateway: GatewayProcess, session: str, encoding: str) -> None:
    answer = http.post(
        gateway.url + CHAT,
        headers={**gateway.bearing(session), "content-encoding": encoding},
        content=gzip.compress(orjson.dumps(BODY)),
    )
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_encoding"
    plain = {**gateway.bearing(session), "content-encoding": "identity"}
    assert http.post(gateway.url + CHAT, headers=plain, json=BODY).status_code == 200


@pytest.mark.parametrize(
    "offer",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
        ("Connection: Upgrade", "Upgrade: websocket"),
        ("Connection: TE", "TE: trailers"),
    ],
    ids=lambda lines: lines[0],
)
def test_an_offer_of_another_protocol_is_ignored(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, offer: tuple[str, ...]
) -> None:
    body = orjson.dumps(BODY)
    begin = head(gateway, session, *offer, f"content-length: {len(body)}", "connection: close")
    assert b'"hello"' in raw_answer(gateway, begin, body[:9], body[9:])
    assert manager.await_command(RequestTurn, session).messages


def test_an_older_client_gets_its_stream_without_chunks(
    gateway: GatewayProcess, session: str
) -> None:
    body = orjson.dumps({**BODY, "stream": True})
    begin = head(gateway, session, f"content-length: {len(body)}").replace(b"/1.1", b"/1.0", 1)
    answer = whole_answer(gateway, begin + body)
    shown, _, events = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in shown
    assert events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/sessions", "/sessions/s/close"])
def test_another_method_is_refused(gateway: GatewayProcess, method: str, path: str) -> None:
    answer = http.request(method, gateway.url + path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "method_not_allowed"


def test_a_key_too_long_to_be_kept_is_refused(gateway: GatewayProcess, session: str) -> None:
    headers = {**gateway.bearing(session), "idempotency-key": "k" * 257}
    answer = http.post(gateway.url + CHAT, headers=headers, json=BODY)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "idempotency-key"


def test_keys_that_differ_stay_different(
    gateway: GatewayProcess, manager: ScriptedManager, session: str
) -> None:
    bearing = [(name.encode(), value.encode()) for name, value in gateway.bearing(session).items()]
    for key in (b"k\xe4", b"k\xf6"):
        headers = [*bearing, (b"idempotency-key", key)]
        assert http.post(gateway.url + CHAT, headers=headers, json=BODY).status_code == 200
    turns = [manager.await_command(RequestTurn, session, number) for number in (1, 2)]
    assert turns[0].idempotency_key != turns[1].idempotency_key


@pytest.mark.parametrize("count", ["", "-1", "1e3", "many", "9" * 400, "²"])
def test_a_strange_retry_count_does_no_harm(
    gateway: GatewayProcess, manager: ScriptedManager, session: str, count: str
) -> None:
    headers = [
        (b"authorization", gateway.bearing(session)["authorization"].encode()),
        (b"x-stainless-retry-count", count.encode()),
    ]
    assert http.post(gateway.url + CHAT, headers=headers, json=BODY).status_code == 200
    assert 0 <= manager.await_command(RequestTurn, session).retry_count < 10**9


@pytest.mark.parametrize("named", ["%ff", "%00", "ä", "%2e%2e", "a%2fb", "x" * 5000, "", "\ud800"])
def test_a_strange_session_is_answered(gateway: GatewayProcess, named: str) -> None:
    path = f"/sessions/{named}/v1/chat/completions".encode("utf-8", "surrogatepass")
    token = gateway.admin["authorization"]
    body = orjson.dumps(BODY)
    lines = f"host: x\r\nauthorization: {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    answer = raw_answer(gateway, b"POST " + path + b" HTTP/1.1\r\n" + lines.encode() + body)
    assert answer.split(b" ", 2)[1] in (b"200", b"400", b"404")


def test_a_head_without_end_is_refused(gateway: GatewayProcess, session: str) -> None:
    endless = head(gateway, session)[:-2] + b"x-more: " + b"a" * 1_000_000
    answer = raw_answer(gateway, endless)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat"], ids=["nothing", "a piece"])
def test_a_head_that_does_not_come_ends_with_408(gateway: GatewayProcess, begun: bytes) -> None:
    assert raw_answer(gateway, begun).startswith(b"HTTP/1.1 408 ")


def test_a_second_head_that_does_not_come_ends_with_408(
    gateway: GatewayProcess, session: str
) -> None:
    place = httpx.URL(gateway.url)
    with socket.create_connection((place.host, place.port or 0), DEADLINE_S) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(head(gateway, session)[:50])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_a_connection_may_rest_between_calls(gateway: GatewayProcess) -> None:
    place, call = httpx.URL(gateway.url), b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection((place.host, place.port or 0), DEADLINE_S) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(call)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert raw_answer(gateway, b"").startswith(b"HTTP/1.1 408 ")
        connection.sendall(call)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_call_is_named_as_its_client_wants(gateway: GatewayProcess, session: str) -> None:
    named = {**gateway.bearing(session), "x-request-id": "my-call.1"}
    whole = http.post(gateway.url + CHAT, headers=named, json=BODY)
    streamed = http.post(gateway.url + CHAT, headers=named, json={**BODY, "stream": True})
    refused = http.post(gateway.url + CHAT, headers=named, json={})
    for answer in (whole, streamed, refused):
        assert answer.headers["x-request-id"] == "my-call.1"


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "ä"])
def test_a_name_that_is_none_is_not_repeated(
    gateway: GatewayProcess, session: str, name: str
) -> None:
    headers = [
        (b"authorization", gateway.bearing(session)["authorization"].encode()),
        (b"x-request-id", name.encode()),
    ]
    answer = http.post(gateway.url + CHAT, headers=headers, json=BODY)
    assert f"chatcmpl-{answer.headers['x-request-id']}" == answer.json()["id"]


@pytest.mark.parametrize("path", [*BODIES, "/sessions"])
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_a_body_over_the_limit_is_refused_at_every_path(
    gateway: GatewayProcess, path: str, announced: bool
) -> None:
    body = b" " * (LIMIT + 1)
    headers = gateway.admin if path == "/sessions" else gateway.bearing("s")
    answer = http.post(
        gateway.url + path,
        headers=headers,
        content=body if announced else iter([body[:LIMIT], body[LIMIT:]]),
    )
    assert answer.status_code == 413
    assert_told(answer, path)


@pytest.mark.parametrize("path", BODIES)
def test_a_missing_key_is_told_in_the_shape_of_each_dialect(
    gateway: GatewayProcess, path: str
) -> None:
    answer = http.post(gateway.url + path, json={})
    assert answer.status_code == 401
    assert_told(answer, path)
