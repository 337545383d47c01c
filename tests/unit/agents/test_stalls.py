"""The watch of the event loop: what blocks it is named, once, and waiting is no blocking."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from traceback import FrameSummary

import pytest
import uvloop

from seamlessflow.producers.agents.stalls import LoopWatch, advice_for, place_of

LIMIT_S = 0.05
WAIT_S = 120.0
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Notices:
    """Takes notices, and lets what blocks the loop go on after the first."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._came = threading.Event()

    def add(self, text: str) -> None:
        self.texts.append(text)
        self._came.set()

    def block_until_one_comes(self) -> None:
        """Block the calling thread, as an agent does that waits without `await`."""
        assert self._came.wait(WAIT_S)
        self._came.clear()


def run(
    loop: Callable[[], asyncio.AbstractEventLoop],
    agent: Callable[[Notices], Awaitable[None] | None],
) -> list[str]:
    """Run an agent under a watch; return the notices."""
    notices = Notices()

    async def main() -> None:
        watch = LoopWatch(notices.add, LIMIT_S)
        try:
            await asyncio.sleep(0)
            if (waiting := agent(notices)) is not None:
                await waiting
        finally:
            watch.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    return notices.texts


@pytest.mark.parametrize("loop", LOOPS)
def test_an_agent_that_blocks_the_loop_is_named_with_its_place(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def blocking_agent(notices: Notices) -> None:
        notices.block_until_one_comes()

    (notice,) = run(loop, blocking_agent)
    assert "test_stalls.py:" in notice
    assert "(block_until_one_comes) blocks the event loop" in notice


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_waits_for_events_is_not_blocked(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    assert run(loop, lambda notices: asyncio.sleep(10 * LIMIT_S)) == []


LIBRARY = FrameSummary(threading.__file__, 3, "wait")
FROZEN = FrameSummary("<frozen importlib._bootstrap>", 1360, "_find_and_load")
TEXT = FrameSummary("<string>", 1, "__create_fn__")
OWN = FrameSummary("/agents/my_agent.py", 7, "run")
MODULE = FrameSummary("/agents/my_tools.py", 2, "<module>")


@pytest.mark.parametrize(
    ("running", "place", "imports"),
    [
        ([FROZEN, FROZEN, OWN], "/agents/my_agent.py:7 (run)", True),
        ([LIBRARY, FROZEN, OWN], "/agents/my_agent.py:7 (run)", True),
        ([LIBRARY, MODULE, FROZEN, OWN], "/agents/my_tools.py:2 (<module>)", True),
        ([TEXT, LIBRARY, OWN], "/agents/my_agent.py:7 (run)", False),
        ([TEXT, LIBRARY], f"{LIBRARY.filename}:3 (wait)", False),
        ([TEXT], "<string>:1 (__create_fn__)", False),
        ([], "", False),
    ],
)
def test_a_line_in_a_file_of_the_agent_is_named_and_an_import_has_advice_of_its_own(
    running: list[FrameSummary], place: str, imports: bool
) -> None:
    assert place_of(running) == place
    advice = advice_for(running)
    assert ("import at the top of the agent's file" in advice, "await" in advice) == (
        imports,
        not imports,
    )
