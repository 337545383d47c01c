"""Commands run in the thread that owns the state, in order, each exactly once."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid, EngineTimeout
from seamlessflow.producers.rollout.engine.thread import CommandQueue, EngineThread


class Owner:
    """A thread that runs commands from `begin` until `stop`."""

    def __init__(self, timeout_s: float = 10) -> None:
        self._stopped = False
        self.begin = threading.Event()
        self.commands = CommandQueue()
        self.thread = EngineThread("owner", timeout_s, self._run, self.commands.put)

    def stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        self.begin.wait(10)
        while not self._stopped:
            self.commands.run(wait_s=None)


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    owner = Owner()
    owner.begin.set()
    yield owner.thread
    owner.thread.close(owner.stop)


def test_commands_run_in_the_order_they_came() -> None:
    commands = CommandQueue()
    seen: list[int] = []
    for number in range(5):
        commands.put(partial(seen.append, number))
    assert len(commands) == 5
    commands.run(wait_s=0)
    assert seen == [0, 1, 2, 3, 4]


def test_an_answer_and_an_error_come_back_to_who_asked(thread: EngineThread) -> None:
    def fail() -> None:
        raise KeyError("seven")

    assert thread.ask("seven", lambda: 7) == 7
    with pytest.raises(KeyError, match="seven"):
        thread.ask("fail", fail)


def test_a_time_out_inside_an_answer_is_not_mistaken_for_the_deadline(
    thread: EngineThread,
) -> None:
    def fail() -> None:
        raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="something else"):
        thread.ask("fail", fail)


def test_the_thread_itself_cannot_wait_for_what_it_has_to_do(thread: EngineThread) -> None:
    with pytest.raises(EngineStateInvalid, match="delivering a chunk"):
        thread.ask("outer", lambda: thread.ask("inner", lambda: 7))
    with pytest.raises(EngineStateInvalid, match="delivering a chunk"):
        thread.ask("outer", lambda: thread.close(lambda: None))


def test_what_is_not_done_in_time_ends_at_its_deadline() -> None:
    owner = Owner(timeout_s=0.01)
    with pytest.raises(EngineTimeout) as late:
        owner.thread.ask("seven", lambda: 7)
    assert late.value.call == "seven"
    with pytest.raises(EngineTimeout) as still_there:
        owner.thread.close(owner.stop)
    assert still_there.value.call == "close"
    owner.begin.set()


def test_what_was_accepted_before_closing_still_runs() -> None:
    owner = Owner()
    seen: list[str] = []

    def last() -> None:
        seen.append("last")
        owner.stop()

    owner.thread.post("add", lambda: seen.append("before"))
    owner.begin.set()
    owner.thread.close(last)
    owner.thread.close(lambda: seen.append("again"))
    with pytest.raises(EngineStateInvalid):
        owner.thread.post("add", lambda: seen.append("after"))
    assert seen == ["before", "last"]
