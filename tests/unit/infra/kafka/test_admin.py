"""Requests to a coordinator: one at a time, and none that librdkafka times out."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.kafka.admin import CoordinatorRequests
from seamlessflow.infra.settings import KafkaSettings

Ask = Callable[[AdminClient, float], Mapping[str, "Future[Any]"]]


@pytest.fixture
def requests() -> CoordinatorRequests:
    return CoordinatorRequests(KafkaSettings(bootstrap_servers="127.0.0.1:1"))


def asking(future: "Future[Any]", asked: list[float]) -> Ask:
    def ask(_: AdminClient, timeout_s: float) -> Mapping[str, "Future[Any]"]:
        asked.append(timeout_s)
        return {"group": future}

    return ask


def answered(value: object) -> "Future[Any]":
    future = Future[Any]()
    future.set_result(value)
    return future


def test_an_answer_is_returned_and_an_error_raised(requests: CoordinatorRequests) -> None:
    refused = Future[Any]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND)))
    assert requests.answer(asking(answered("members"), []), 1) == "members"
    with pytest.raises(KafkaException):
        requests.answer(asking(refused, []), 1)
    assert requests.answer(asking(answered("again"), []), 1) == "again"


def test_a_request_without_an_answer_is_waited_for_before_the_next(
    requests: CoordinatorRequests,
) -> None:
    pending, first, second = Future[Any](), list[float](), list[float]()
    for ask in (asking(pending, first), asking(answered("newer"), second)):
        with pytest.raises(KafkaException) as error:
            requests.answer(ask, 0.01)
        assert error.value.args[0].code() == KafkaError._TIMED_OUT
    assert (len(first), second) == (1, [])
    pending.set_result("older")
    assert requests.answer(asking(answered("newer"), second), 1) == "newer"
    assert (len(first), len(second)) == (1, 1)


def test_librdkafka_is_given_its_longest_time(requests: CoordinatorRequests) -> None:
    asked = list[float]()
    requests.answer(asking(answered("members"), asked), 0.5)
    assert asked == [3600.0]
