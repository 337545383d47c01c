"""Work in a thread: results and errors arrive in the loop, once."""

import threading

import pytest

from seamlessflow.trainer.roles.parts import Work

TIMEOUT_S = 10


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
