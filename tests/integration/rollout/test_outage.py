"""A rollout process that gets SIGTERM while its Kafka is unreachable."""

import signal
from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.schemas import records as r
from tests.builders.rollout.rollout_system import rollout_system

END_S = 60.0
ENDLESS = '{"text": "code 3", "tokens": 400, "tokens_per_second": 10}'


@pytest.mark.slow
def test_told_to_end_in_the_middle_of_a_turn_while_kafka_is_away_it_does(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    with (
        Broker(tmp_path / "kafka", java=SHORT_LIVED) as broker,
        rollout_system(broker.settings, tmp_path) as system,
    ):
        system.publish_unread("w", 0)
        process = system.start_process("w", "policy-w", engine="scripted", scripted=ENDLESS)
        system.generate(system.serve("w", 1), "t", stream=True)
        system.wait(r.TurnProgressed, lambda some: some.turn_id == "t")
        system.producer.flush(END_S)
        broker.stop()
        process.send_signal(signal.SIGTERM)
        _, words = process.communicate(timeout=END_S)
        assert process.returncode == ExitStatus.PASSING
        assert b"ended before Kafka acknowledged all records" in words
        assert b"Traceback" not in words
