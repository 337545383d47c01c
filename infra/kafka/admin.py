"""Admin requests to a group's coordinator, without librdkafka's time-out.

A request that times out while its coordinator is away stays on librdkafka's list. When the
coordinator is back, librdkafka (2.16) answers it a second time from freed memory. That ends the
process: `rd_kafka_enq_once_del_source_return: assert: eonce->refcnt > 0`, or a segmentation fault.
Requests therefore get the longest time-out that librdkafka knows. If a request has no answer in
time, the next one waits until it has. Some are never answered. After 20 s a client is given up with
its request. Closing such a client was seen to end a process too, once in two thousand times.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from seamlessflow.infra.kafka.client import client, client_options
from seamlessflow.infra.settings import KafkaSettings

_LONGEST_S = 3600.0
"""librdkafka's largest `request_timeout`."""
_GIVE_UP_S = 20.0
AdminCall = Callable[[AdminClient, float], Mapping[str, Future[Any]]]
"""Sends a request for one group, with this `request_timeout`; the answer is by the group's name."""


class CoordinatorRequests:
    """An admin client with one request at a time, for one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._options = client_options(settings)
        self._admin: AdminClient = client(AdminClient, self._options)
        self._waiting: Future[Any] | None = None
        """A request without an answer so far: until that comes, no other request is sent."""
        self._asked_s = 0.0

    def answer(self, ask: AdminCall, timeout_s: float) -> Any:
        """Return the answer. Raises `KafkaException`, with `_TIMED_OUT` after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if self._waiting is not None:
                self._await_earlier(self._waiting, deadline_s)
            (asked,) = ask(self._admin, _LONGEST_S).values()
            self._asked_s = time.monotonic()
            return self._await(asked, deadline_s)
        except TimeoutError as error:
            reason = KafkaError(KafkaError._TIMED_OUT, "no answer of the group's coordinator")
            raise KafkaException(reason) from error

    def _await_earlier(self, asked: "Future[Any]", deadline_s: float) -> None:
        """Wait for an earlier request's answer, or give it up. Raises `TimeoutError`."""
        give_up_s = self._asked_s + _GIVE_UP_S
        try:
            with suppress(KafkaException):
                self._await(asked, min(deadline_s, give_up_s))
        except TimeoutError:
            if time.monotonic() < give_up_s:
                raise
            self._admin = client(AdminClient, self._options)
            self._waiting = None

    def _await(self, asked: "Future[Any]", deadline_s: float) -> Any:
        """Return an answer, or raise its error. Raises `TimeoutError`, and then keeps waiting."""
        self._waiting = asked
        try:
            return asked.result(max(0.0, deadline_s - time.monotonic()))
        finally:
            if asked.done():
                self._waiting = None
