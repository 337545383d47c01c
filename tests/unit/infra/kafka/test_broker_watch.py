"""Statistics that show that a client has no broker left."""

import json

from infra.kafka.client import BrokerWatch


def statistics(*sources: str) -> str:
    return json.dumps({"brokers": {str(n): {"source": one} for n, one in enumerate(sources)}})


NONE = statistics("internal", "logical")
KNOWN = statistics("internal", "logical", "learned")


def watch(*seen: str) -> bool:
    watch = BrokerWatch()
    for one in seen:
        watch.note(one)
    return watch.stranded


def test_a_client_without_brokers_for_two_statistics_is_stranded() -> None:
    assert watch(KNOWN, NONE, NONE)


def test_a_client_that_finds_brokers_again_is_not() -> None:
    assert not watch(KNOWN, NONE, KNOWN, NONE)
    assert not watch(NONE, statistics("configured"))
