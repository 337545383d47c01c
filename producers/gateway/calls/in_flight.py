"""The calls that a gateway has accepted and not yet answered; `app.py` enters each of them here.

A call is refused while the gateway drains (not yet while it leaves), and while Kafka is not
reachable. It is also refused if it exceeds the limit on calls or on the bytes in their bodies.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import Exchange
from seamlessflow.producers.gateway.link import Link

_log = logging.getLogger(__name__)


class CallsInFlight:
    """A count of calls and their bytes. Use it only on the event loop."""

    def __init__(self, link: Link, limit: int, limit_bytes: int) -> None:
        self._link = link
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._draining = False
        self.leaving = False
        """True once the gateway was asked to end: its clients should go to another one."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.count = 0

    @contextmanager
    def call(self, exchange: Exchange) -> Iterator[None]:
        """Count one more call, and its body as it arrives.

        Raises `ApiError` (429, 503) if none is accepted now.
        """
        self.refuse_unless_serving()
        if self.count >= self._limit:
            raise ApiError(429, f"{self.count} calls are under way", code="too_many_calls")
        self.count += 1
        self._idle.clear()
        exchange.hold_by(self._hold)
        try:
            yield
        finally:
            self._bytes -= exchange.held
            self.count -= 1
            if not self.count:
                self._idle.set()

    def refuse_unless_serving(self) -> None:
        """Raise `ApiError` (503) while the gateway drains or Kafka is not reachable."""
        if self._draining:
            raise _going_down()
        if not self._link.reachable:
            raise ApiError(503, "Kafka is not reachable", code="kafka_unavailable")

    def refuse_unless_ready(self) -> None:
        """Raise `ApiError` (503) if new clients should go to another gateway."""
        if self.leaving:
            raise _going_down()
        self.refuse_unless_serving()

    def leave(self) -> None:
        """Report not ready from now on, but still take calls."""
        self.leaving = True

    def _hold(self, size: int) -> None:
        if self._bytes + size > self._limit_bytes:
            message = f"the bodies of {self.count} calls under way take {self._bytes} bytes"
            raise ApiError(429, message, code="too_many_bytes")
        self._bytes += size

    async def drain(self, timeout_s: float) -> None:
        """Accept no more calls; those under way get `timeout_s` to finish, then 503."""
        self._draining = self.leaving = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            _log.warning("%d calls are not finished", self.count)
            self._link.refuse_all(_going_down())


def _going_down() -> ApiError:
    return ApiError(503, "this gateway is going down", code="draining")
