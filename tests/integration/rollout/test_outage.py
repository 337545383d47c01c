"""A rollout process that gets SIGTERM while its Kafka is unreachable."""

import signal
from pathlib import Path

import pytest

from infra.broker.broker import Broker
from schemas import records as r
from seamlessflow.demo.tokenizer import make_tokenizer
from tests.integration.rollout.rollout_stage import staged

END_S = 60.0
ENDLESS = '{"text": "code 3", "tokens": 400, "tokens_per_second": 10}'


@pytest.mark.slow
def test_told_to_end_in_the_middle_of_a_turn_while_kafka_is_away_it_does(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    with (
        Broker(tmp_path / "kafka", short_lived=True) as broker,
        staged(broker.settings, tmp_path) as stage,
    ):
        stage.publish("policy-w", 0, Path("nowhere"), "none")
        process = stage.start_process("w", "policy-w", engine="scripted", scripted=ENDLESS)
        stage.generate(stage.serve("w", 1), "t", stream=True)
        stage.wait(r.TurnProgressed, lambda some: some.turn_id == "t")
        stage.producer.flush(END_S)
        broker.stop()
        process.send_signal(signal.SIGTERM)
        _, words = process.communicate(timeout=END_S)
        assert process.returncode == 1
        assert b"ended without telling Kafka all it had to" in words
        assert b"Traceback" not in words
