"""A live page is rendered once for all that show it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from seamlessflow.console.web.live import MOST_CHANNELS, SHARE, Broadcaster, CpuBudget, event
from seamlessflow.infra.errors import KafkaUnavailable


async def next_page(events: AsyncIterator[bytes]) -> bytes:
    async for chunk in events:
        if chunk.startswith(b"data:"):
            return chunk
    raise AssertionError("the events ended")


def test_a_change_is_rendered_once_and_reaches_all() -> None:
    asyncio.run(asyncio.wait_for(_once_for_all(), 60))


async def _once_for_all() -> None:
    broadcaster = Broadcaster()
    made: list[str] = []

    def render() -> str:
        made.append(f"page {len(made)}")
        return made[-1]

    readers = [broadcaster.events("now", render) for _ in range(20)]
    waiting = [asyncio.create_task(next_page(events)) for events in readers]
    running = asyncio.create_task(broadcaster.run())
    first = await asyncio.gather(*waiting)
    assert set(first) == {b"data: page 0\n\n"}
    assert broadcaster.readers == 20
    broadcaster.changed()
    second = await asyncio.gather(*(next_page(events) for events in readers))
    assert set(second) == {b"data: page 1\n\n"}
    assert broadcaster.renderings == len(made) == 2
    for events in readers:
        await events.aclose()
    assert broadcaster.readers == 0
    running.cancel()


def test_a_share_of_the_time_may_be_spent_whatever_takes_it() -> None:
    budget = CpuBudget(now_s=100.0, cpu_s=7.0)
    assert not budget.has_left(100.0, 7.0)
    assert budget.has_left(101.0, 7.0)
    spent_s = 7.0
    for second in range(102, 202):
        if budget.has_left(second, spent_s):
            spent_s += 0.2
    assert spent_s - 7.0 == pytest.approx(SHARE * 100, abs=0.2)


def test_what_the_opening_of_a_log_took_is_soon_forgotten() -> None:
    budget = CpuBudget(now_s=0.0, cpu_s=0.0)
    assert not budget.has_left(74.0, 74.0)
    assert not budget.has_left(83.0, 74.0)
    assert budget.has_left(85.0, 74.0)


def test_a_page_that_cannot_be_rendered_now_stays_as_it_was() -> None:
    asyncio.run(asyncio.wait_for(_outage(), 60))


async def _outage() -> None:
    broadcaster = Broadcaster()
    away = False

    def render() -> str:
        if away:
            raise KafkaUnavailable("here:1", 1.0)
        return f"page {broadcaster.renderings}"

    running = asyncio.create_task(broadcaster.run())
    async with aclosing(broadcaster.events("now", render)) as events:
        assert await next_page(events) == b"data: page 0\n\n"
        away = True
        broadcaster.changed()
        while broadcaster.renderings < 2:
            await asyncio.sleep(0)
        away = False
        broadcaster.changed()
        assert await next_page(events) == b"data: page 2\n\n"
    running.cancel()


def test_a_page_with_a_fault_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(asyncio.wait_for(_fault(), 60))
    assert "ValueError: a fault of this page" in caplog.text


async def _fault() -> None:
    broadcaster = Broadcaster()

    def fail() -> str:
        raise ValueError("a fault of this page")

    async with aclosing(broadcaster.events("broken", fail)) as broken:
        await anext(broken)
        async with aclosing(broadcaster.events("now", lambda: "page")) as events:
            running = asyncio.create_task(broadcaster.run())
            assert await next_page(events) == b"data: page\n\n"
    running.cancel()


def test_only_so_many_different_pages_are_rendered() -> None:
    asyncio.run(_full())


async def _full() -> None:
    broadcaster = Broadcaster()
    readers = [broadcaster.events(str(number), str) for number in range(MOST_CHANNELS)]
    for events in readers:
        await anext(events)
    assert not broadcaster.has_room("another")
    assert broadcaster.has_room("0")
    for events in readers:
        await events.aclose()
    assert broadcaster.has_room("another")


def test_the_end_of_the_server_ends_all_streams() -> None:
    asyncio.run(asyncio.wait_for(_closed(), 60))


async def _closed() -> None:
    broadcaster = Broadcaster()
    events = broadcaster.events("now", lambda: "page")
    await anext(events)
    broadcaster.close()
    assert [chunk async for chunk in events] == []
    assert broadcaster.readers == 0


def test_an_event_has_each_line_by_itself() -> None:
    assert event("a\nb\r\nc") == b"data: a\ndata: b\ndata: \ndata: c\n\n"
