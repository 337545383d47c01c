"""What ends an answer, told through everything to the vendors' clients: real Kafka, an engine that
says what stands in the script."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from infra.settings import KafkaSettings
from tests.agents.theatre import Theatre, theatre

pytestmark = pytest.mark.kafka
USER: Any = {"role": "user", "content": "Say something."}


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with theatre(broker, tmp_path_factory.mktemp("theatre")) as made:
        yield made


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "")


@pytest.fixture
def claude(system: Theatre, session: str) -> Iterator[anthropic.Anthropic]:
    opened = system.open(session)
    with anthropic.Anthropic(
        base_url=opened.base_url.removesuffix("/v1"), api_key=opened.api_key
    ) as client:
        yield client


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("stops", "ending", "text"),
    [
        (["none", " answer"], ("stop_sequence", " answer"), "A short"),
        (["none"], ("end_turn", None), "A short answer."),
    ],
    ids=["stopped", "ended"],
)
def test_anthropics_client_reads_which_stop_sequence_ended_the_answer(
    claude: anthropic.Anthropic, stops: list[str], ending: Any, text: str, streamed: bool
) -> None:
    asked: Any = {"model": "policy", "max_tokens": 99, "messages": [USER], "stop_sequences": stops}
    if streamed:
        with claude.messages.stream(**asked) as stream:
            message: Any = stream.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert (message.stop_reason, message.stop_sequence) == ending
    assert [block.text for block in message.content] == [text]
