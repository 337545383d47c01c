"""Fixtures of the gateway's tests: topics of their own, a scripted manager, a gateway, a client."""

import uuid
from collections.abc import Iterator

import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from tests.builders.gateway.scripted_manager import (
    GatewayProcess,
    ScriptedManager,
    gateway_process,
)
from tests.builders.own_topics import own_topics


@pytest.fixture(scope="module")
def prefixed(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    with own_topics(broker) as settings:
        yield settings


@pytest.fixture(scope="module")
def manager(prefixed: KafkaSettings) -> Iterator[ScriptedManager]:
    scripted = ScriptedManager(prefixed)
    yield scripted
    scripted.close()


@pytest.fixture(scope="module")
def gateway(prefixed: KafkaSettings, manager: ScriptedManager) -> Iterator[GatewayProcess]:
    with gateway_process(prefixed, disconnect_grace_s=0.5, max_body_bytes=200_000) as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(gateway: GatewayProcess, session: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session), max_retries=0
    ) as made:
        yield made
