"""What tests of the gateway stand on: topics of their own, a manager with a script, a client."""

import uuid
from collections.abc import Iterator

import openai
import pytest

from infra.settings import KafkaSettings
from tests.integration.gateway.gateway_double import GatewayProcess, ScriptedManager


@pytest.fixture(scope="module")
def prefixed(broker: KafkaSettings) -> KafkaSettings:
    return broker.model_copy(update={"topic_prefix": f"gateway-{uuid.uuid4().hex[:8]}."})


@pytest.fixture(scope="module")
def manager(prefixed: KafkaSettings) -> Iterator[ScriptedManager]:
    scripted = ScriptedManager(prefixed)
    yield scripted
    scripted.close()


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(gateway: GatewayProcess, session: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.keys.session_key(session), max_retries=0
    ) as made:
        yield made
