import asyncio
from collections.abc import Callable, Iterator

import pytest

from seamlessflow.producers.gateway.calls.turns import KeepAliveTimer

PATIENCE_S = 15.0


class Hours:
    """A clock that advances only when a test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = 0.0
        self._loop = loop
        self._due: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + delay, callback, (), self._loop)
        self._due.append((timer, callback))
        return timer

    def until(self, then: float) -> None:
        while ready := [pair for pair in self._due if pair[0].when() <= then]:
            timer, callback = min(ready, key=lambda pair: pair[0].when())
            self._due.remove((timer, callback))
            if not timer.cancelled():
                self.now = timer.when()
                callback()
        self.now = then


@pytest.fixture
def clock() -> Iterator[Hours]:
    loop = asyncio.new_event_loop()
    yield Hours(loop)
    loop.close()


def test_it_expires_again_and_again_without_a_restart(clock: Hours) -> None:
    noticed: list[float] = []
    KeepAliveTimer(clock, PATIENCE_S, lambda: noticed.append(clock.now))
    clock.until(46)
    assert noticed == [15, 30, 45]


def test_a_restart_begins_the_whole_time_again(clock: Hours) -> None:
    noticed: list[float] = []
    timer = KeepAliveTimer(clock, PATIENCE_S, lambda: noticed.append(clock.now))
    for second in range(100):
        clock.until(second)
        timer.restart()
    assert noticed == []
    clock.until(120)
    assert noticed == [114]


def test_it_never_expires_after_cancel(clock: Hours) -> None:
    noticed: list[float] = []
    timer = KeepAliveTimer(clock, PATIENCE_S, lambda: noticed.append(clock.now))
    clock.until(20)
    timer.cancel()
    clock.until(100)
    assert noticed == [15]
