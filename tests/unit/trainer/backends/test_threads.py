"""What runs beside the loop: its results and errors arrive in the loop, in order, once."""

import threading

import pytest

from infra.kafka.client import Received
from schemas.records import RunFinished
from trainer.inbox import Inbox
from trainer.work import Work

TIMEOUT_S = 10


def received(offset: int) -> Received:
    record = RunFinished(at_ms=0, steps=1, reason="")
    return Received("control", 0, offset, 0, None, (), record)


def test_everything_that_is_there_is_taken_in_order() -> None:
    inbox = Inbox()
    inbox.put([received(0), received(1)])
    inbox.put_when_open([received(2)])
    assert [one.offset for one in inbox.take(0.01)] == [0, 1, 2]
    assert list(inbox.take(0.01)) == []


def test_the_brake_holds_sessions_back_until_it_is_let_go() -> None:
    inbox, passed = Inbox(), threading.Event()
    inbox.brake(True)

    def deliver() -> None:
        inbox.put_when_open([received(5)])
        passed.set()

    thread = threading.Thread(target=deliver)
    thread.start()
    assert not passed.wait(0.05)
    assert list(inbox.take(0.01)) == []
    inbox.brake(False)
    assert passed.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)
    assert [one.offset for one in inbox.take(0.01)] == [5]


def test_a_reader_that_died_is_an_error_of_the_loop() -> None:
    inbox = Inbox()
    inbox.fail(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        list(inbox.take(0.01))


def test_work_is_taken_in_when_it_is_over_and_what_follows_may_begin_more() -> None:
    work, results, gate = Work(), list[int](), threading.Event()

    def first() -> int:
        assert gate.wait(TIMEOUT_S)
        return 1

    def then(result: int) -> None:
        results.append(result)
        work.begin(lambda: 2, results.append)

    work.begin(first, then)
    assert not work.collect()
    gate.set()
    work.finish()
    assert results == [1, 2] and work.idle
    work.close()


def test_an_error_of_the_work_is_an_error_of_the_loop() -> None:
    work = Work()
    work.begin(lambda: 1 // 0, print)
    with pytest.raises(ZeroDivisionError):
        work.finish()
    work.close()
