"""Damaged requests to a real gateway: each gets a clear answer and harms no other call."""

import uuid
from collections.abc import Iterator

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import RequestTurn
from seamlessflow.schemas.topics import REPLIES, REQUESTS
from tests import http
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.gateway.bodies import BODIES
from tests.builders.gateway.damage import damaged
from tests.builders.gateway.scripted_manager import (
    DEADLINE_S,
    USER,
    GatewayProcess,
    ScriptedManager,
    assert_told,
    finished,
    gateway_process,
)
from tests.builders.own_topics import SMALL
from tests.waiting import until

COUNTED = {
    "/v1/messages/count_tokens": "/v1/messages",
    "/v1beta/models/*:countTokens": "/v1beta/models/*:generateContent",
}
"""Paths of counts, and of the calls whose bodies they take."""

BODY = {"model": "m", "messages": [USER]}
CHAT = "/v1/chat/completions"
LIMIT = 200_000

COMMANDS = {
    "/sessions": {"policy": "p", "metadata": {"a": "b"}, "sample": 1, "max_age_s": 60},
    "/sessions/s/reward": {"value": 0.5, "name": "n", "turn": "chatcmpl-1", "final": True},
    "/sessions/s/close": {"status": "complete", "reason": "r", "await_reward_s": 1},
}


@pytest.fixture(scope="module")
def gateway(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    with gateway_process(prefixed, max_body_bytes=LIMIT, body_timeout_s=0.5) as running:
        yield running


def assert_unharmed(
    gateway: GatewayProcess, manager: ScriptedManager, kafka: KafkaSettings
) -> None:
    """Check that the gateway still answers and that every record it wrote can be read."""
    assert gateway.process.poll() is None
    assert http.get(f"{gateway.url}/health").status_code == 200
    answer = http.post(gateway.url + CHAT, headers=gateway.bearing("well"), json=BODY)
    assert answer.status_code == 200
    reader = Reader(kafka, "ends-of-requests")
    partitions = [(REQUESTS.name, number) for number in range(SMALL[REQUESTS.name].partitions)]
    written = sum(reader.ends(partitions).values())
    reader.close()
    until(lambda: len(manager.received) >= written, "all records to be read")
    assert len(manager.received) == written


@pytest.mark.parametrize("path", [*BODIES, *COUNTED])
def test_damaged_bodies_are_answered_and_do_no_harm(
    gateway: GatewayProcess, manager: ScriptedManager, prefixed: KafkaSettings, path: str
) -> None:
    whole = BODIES[COUNTED.get(path, path)]
    session = f"damaged-{uuid.uuid4().hex[:8]}"
    with httpx.Client(
        base_url=gateway.url, headers=gateway.bearing(session), timeout=DEADLINE_S
    ) as client:

        @settings(max_examples=60, suppress_health_check=list(HealthCheck))
        @given(damaged(whole))
        def answers(body: bytes) -> None:
            assume(len(body) < LIMIT)
            answer = client.post(path, content=body)
            if answer.status_code != 200:
                assert 400 <= answer.status_code < 500
                assert_told(answer, path)

        answers()
    assert_unharmed(gateway, manager, prefixed)


@pytest.mark.parametrize("path", COMMANDS)
def test_damaged_session_commands_are_answered(
    gateway: GatewayProcess, manager: ScriptedManager, prefixed: KafkaSettings, path: str
) -> None:
    with httpx.Client(base_url=gateway.url, headers=gateway.admin, timeout=DEADLINE_S) as client:

        @settings(max_examples=60, suppress_health_check=list(HealthCheck))
        @given(damaged(COMMANDS[path]))
        def answers(body: bytes) -> None:
            assume(len(body) < LIMIT)
            answer = client.post(path, content=body)
            if answer.status_code not in (200, 201):
                assert answer.status_code == 400
                assert_told(answer, path)

        answers()
    assert_unharmed(gateway, manager, prefixed)


def test_strange_headers_do_no_harm(
    gateway: GatewayProcess,
    manager: ScriptedManager,
    prefixed: KafkaSettings,
) -> None:
    names = (
        "x-session-id",
        "x-seamlessflow-module",
        "x-seamlessflow-agent",
        "user-agent",
        "idempotency-key",
        "x-stainless-retry-count",
        "x-request-id",
        "traceparent",
        "tracestate",
        "content-type",
        "content-encoding",
        "accept-encoding",
        "expect",
        "x-api-key",
        "x-goog-api-key",
        "x-goog-api-client",
        "anthropic-version",
    )
    printable = st.binary(max_size=300).map(
        lambda value: bytes(byte for byte in value if byte >= 32 and byte != 127).strip()
    )
    body = orjson.dumps(BODY)
    with httpx.Client(base_url=gateway.url, timeout=DEADLINE_S) as client:

        @settings(max_examples=150, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(st.sampled_from(names), printable, max_size=4))
        def answers(headers: dict[str, bytes]) -> None:
            sent = [(name.encode(), value) for name, value in headers.items()]
            bearing = gateway.bearing("headers")["authorization"].encode()
            answer = client.post(CHAT, content=body, headers=[*sent, (b"authorization", bearing)])
            if answer.status_code != 200:
                assert 400 <= answer.status_code < 500
                assert_told(answer, CHAT)

        answers()
    assert_unharmed(gateway, manager, prefixed)


def test_garbage_among_the_replies_is_buried_and_the_gateway_answers_on(
    gateway: GatewayProcess, manager: ScriptedManager, prefixed: KafkaSettings
) -> None:
    assert_unharmed(gateway, manager, prefixed)
    asked = next(record for record in manager.received if isinstance(record, RequestTurn))
    assert asked.reply is not None
    partition = asked.reply.partition
    garbage = litter(prefixed, REPLIES, partition, finished(asked))
    append_newer(prefixed, REPLIES, partition)
    assert_unharmed(gateway, manager, prefixed)
    until(lambda: buried(prefixed, REPLIES, partition) == garbage, "the dead letters")
