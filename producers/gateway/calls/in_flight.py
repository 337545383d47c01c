"""The calls that a gateway has accepted and not yet answered; `app.py` enters each of them here.

A call is refused while the gateway drains (not yet while it leaves), while Kafka is not reachable,
and over the limit.
"""

import asyncio
import logging

from producers.gateway.errors import ApiError
from producers.gateway.link.link import Link

_log = logging.getLogger(__name__)


class CallsInFlight:
    """A count of calls, and a context manager for each. To be used on the event loop only."""

    def __init__(self, link: Link, limit: int) -> None:
        self._link = link
        self._limit = limit
        self._draining = False
        self.leaving = False
        """True once the gateway was asked to end: its clients should go to another one."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.count = 0

    def __enter__(self) -> None:
        """Count one more call. Raises `ApiError` (429, 503) if none is accepted now."""
        self.refuse_unless_serving()
        if self.count >= self._limit:
            raise ApiError(429, f"{self.count} calls are under way", code="too_many_calls")
        self.count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
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
        """Take calls for the moment, but no longer be ready."""
        self.leaving = True

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
