"""The agents process during an outage of Kafka that costs it its partitions."""

import asyncio
import threading
from pathlib import Path

import pytest

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.client import STRANDED
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import FLEET, TASKS
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


ATTEMPTS = 4
"""An outage may leave the client without a broker for ever; its process is then started again."""


class Outage:
    """An agents process whose only partition is lost in an outage of Kafka and comes back."""

    def __init__(self, broker: Broker, kafka: KafkaSettings) -> None:
        self.broker, self.kafka = broker, kafka
        self.ended: list[BaseException | None] = []
        """Errors of its threads; in a process of its own each would end it."""
        self._back = asyncio.Event()

    def note(self, arguments: threading.ExceptHookArgs) -> None:
        self.ended.append(arguments.exc_value)

    async def seen(self, caplog: pytest.LogCaptureFixture) -> ScriptedGateway:
        """Return what the gateway saw of it."""
        caplog.clear()
        async with running(self.kafka, "waiting", self._answering) as gateway:
            await until(lambda: len(opened(gateway)) == 1)
            await asyncio.to_thread(self.broker.stop)
            releases[-1].set()
            await until(lambda: bool(self.ended) or "were not handed over" in caplog.text)
            await asyncio.to_thread(self.broker.start)
            await asyncio.to_thread(issue_samples, self.kafka, 1, 1)
            await until(lambda: bool(self.ended) or len(opened(gateway)) == 2, LONG_S)
            self._back.set()
            await until(lambda: bool(self.ended) or len(closed(gateway)) >= 2)
        return gateway

    def _answering(self, path: str, body: Payload) -> tuple[int, Payload]:
        accepted = self._back.is_set() or path == "/sessions"
        return accepting(path, body) if accepted else refusal(503, "kafka")


@pytest.mark.kafka
@pytest.mark.slow
def test_what_ended_in_an_outage_counts_though_the_partition_was_lost_and_came_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    classic = {"group_protocol": "classic", "session_timeout_s": SESSION_TIMEOUT_S}
    with Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker:
        for attempt in range(ATTEMPTS):
            prefix = {"topic_prefix": f"attempt{attempt}."}
            kafka = broker.settings.model_copy(update={**classic, **prefix})
            create_topics(kafka, small(TASKS, FLEET))
            issue_samples(kafka, 1)
            outage = Outage(broker, kafka)
            monkeypatch.setattr(threading, "excepthook", outage.note)
            gateway = on_uvloop(outage.seen(caplog))
            if not outage.ended:
                break
            assert [STRANDED in str(error) for error in outage.ended] == [True]

        assert closed(gateway) == [("complete", "policy")] * 2
        assert committed(kafka) == 2
