"""The agents process during an outage of Kafka that costs it its partitions."""

import asyncio
from pathlib import Path

import pytest

from infra.broker.broker import Broker
from infra.kafka.topics.creation import create_topics
from schemas.topics import TASKS
from tests.builders.own_topics import small
from tests.integration.agents.agents_process import (
    Payload,
    closed,
    issue_samples,
    opened,
    releases,
    running,
    until,
)
from tests.integration.agents.group import committed
from tests.integration.agents.scripted_gateway import (
    ScriptedGateway,
    accepting,
    on_uvloop,
    refusal,
)

LONG_S = 90
"""Limit for starting a broker and joining a group again, on a busy machine."""
SESSION_TIMEOUT_S = 6  # the shortest that brokers allow


@pytest.mark.kafka
@pytest.mark.slow
def test_what_ended_in_an_outage_counts_though_the_partition_was_lost_and_came_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "kafka", short_lived=True) as broker:
        classic = {"group_protocol": "classic", "session_timeout_s": SESSION_TIMEOUT_S}
        kafka = broker.settings.model_copy(update=classic)
        create_topics(kafka, small(TASKS))
        issue_samples(kafka, 1)
        back = asyncio.Event()

        def answering(path: str, body: Payload) -> tuple[int, Payload]:
            known = back.is_set() or path == "/sessions"
            return accepting(path, body) if known else refusal(503, "kafka")

        async def main() -> ScriptedGateway:
            async with running(kafka, "waiting", answering) as gateway:
                await until(lambda: len(opened(gateway)) == 1)
                await asyncio.to_thread(broker.stop)
                releases[-1].set()
                await until(lambda: "were not handed over" in caplog.text)
                await asyncio.to_thread(broker.start)
                await asyncio.to_thread(issue_samples, kafka, 1, 1)
                await until(lambda: len(opened(gateway)) == 2, LONG_S)
                back.set()
                await until(lambda: len(closed(gateway)) >= 2)
            return gateway

        assert closed(on_uvloop(main())) == [("complete", "policy")] * 2
        assert committed(kafka) == 2
