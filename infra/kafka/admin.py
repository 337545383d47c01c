"""Requests of an admin client to the coordinator of a group, without librdkafka's time-out.

A request that times out while its coordinator is away stays on librdkafka's list. When the
coordinator is back, librdkafka (2.16) answers it a second time out of freed memory, and ends the
process: `rd_kafka_enq_once_del_source_return: assert: eonce->refcnt > 0`, or a segmentation fault.
It does so also where the client is closed meanwhile. So requests get the longest time-out that it
knows, and one that has no answer in time is waited for before the next one is sent.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.client import client, client_options
from infra.settings import KafkaSettings

_LONGEST_S = 3600.0
"""Largest `request_timeout` of librdkafka."""
Asked = Callable[[AdminClient, float], Mapping[str, Future[Any]]]
"""Sends a request for one group, with this `request_timeout`; the answer is by the group's name."""


class CoordinatorRequests:
    """An admin client with one request at a time, for one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin: AdminClient = client(AdminClient, client_options(settings))
        self._waiting: Future[Any] | None = None
        """A request without an answer so far: no other one is sent before that comes."""

    def answer(self, ask: Asked, timeout_s: float) -> Any:
        """Return the answer. Raises `KafkaException`, with `_TIMED_OUT` after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if self._waiting is not None:
                with suppress(KafkaException):  # it belongs to an earlier question
                    self._await(self._waiting, deadline_s)
            (asked,) = ask(self._admin, _LONGEST_S).values()
            return self._await(asked, deadline_s)
        except TimeoutError as error:
            reason = KafkaError(KafkaError._TIMED_OUT, "no answer of the group's coordinator")
            raise KafkaException(reason) from error

    def _await(self, asked: "Future[Any]", deadline_s: float) -> Any:
        """Return an answer, or raise its error. Raises `TimeoutError`, and then keeps waiting."""
        self._waiting = asked
        try:
            return asked.result(max(0.0, deadline_s - time.monotonic()))
        finally:
            if asked.done():
                self._waiting = None
