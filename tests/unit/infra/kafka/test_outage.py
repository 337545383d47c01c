"""Errors of an outage: which of them pass."""

import pytest
from confluent_kafka import KafkaError

from seamlessflow.infra.kafka.outage import passes


@pytest.mark.parametrize(
    ("code", "outlasted"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._ALL_BROKERS_DOWN, True),
        (KafkaError._DESTROY_BROKER, True),
        (KafkaError.NOT_COORDINATOR, True),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
    ],
)
def test_an_outage_is_waited_out_and_a_refusal_is_not(code: int, outlasted: bool) -> None:
    assert passes(KafkaError(code)) is outlasted
