"""Ended groups: who waits for their end is told, and the oldest are forgotten."""

import asyncio

from seamlessflow.producers.agents.ended_groups import MOST, EndedGroups, ended_by
from tests.builders.records import control


def test_ready_and_dropped_groups_have_ended() -> None:
    records = [
        control.admitted("g-0"),
        control.ready("g-1"),
        control.dropped("g-2", "too_few"),
        control.expired("g-3"),
    ]
    assert ended_by(records) == ["g-1", "g-2"]


def test_all_who_wait_for_a_group_are_told_of_its_end_and_no_others() -> None:
    async def main() -> None:
        groups = EndedGroups()
        waiting = [asyncio.create_task(groups.until_end(name)) for name in ("a", "a", "b")]
        await asyncio.sleep(0)
        groups.end(["a"])
        await asyncio.gather(*waiting[:2], groups.until_end("a"))
        assert not waiting[2].done()
        waiting[2].cancel()

    asyncio.run(main())


def test_a_bounded_number_of_groups_is_remembered() -> None:
    groups = EndedGroups()
    groups.end(str(number) for number in range(MOST + 1))
    assert ("0" in groups, "1" in groups, str(MOST) in groups) == (False, True, True)
