"""Statistics that show that a client has no broker left."""

import json

from seamlessflow.infra.kafka.client import BrokerWatch


def statistics(*sources: str, state: str = "UP", since_s: float = 60) -> str:
    facts = {"state": state, "stateage": int(1e6 * since_s)}
    return json.dumps(
        {"brokers": {str(n): {"source": source, **facts} for n, source in enumerate(sources)}}
    )


NONE = statistics("internal", "logical")
KNOWN = statistics("internal", "logical", "learned")
ALONE = statistics("logical", "learned", state="INIT")


def watch(*seen: str) -> bool:
    watch = BrokerWatch()
    for text in seen:
        watch.note(text)
    return watch.stranded


def test_a_client_without_brokers_for_two_statistics_is_stranded() -> None:
    assert watch(KNOWN, NONE, NONE)


def test_a_client_that_finds_brokers_again_is_not() -> None:
    assert not watch(KNOWN, NONE, KNOWN, NONE)
    assert not watch(NONE, statistics("configured"))


def test_a_client_that_never_connects_to_the_broker_that_it_knows_is_stranded() -> None:
    assert watch(ALONE, ALONE)
    assert watch(NONE, ALONE)


def test_a_client_that_tries_to_connect_is_not() -> None:
    for trying in (
        statistics("learned", state="INIT", since_s=1),
        statistics("learned", state="TRY_CONNECT"),
        statistics("learned", state="DOWN"),
    ):
        assert not watch(trying, trying)
