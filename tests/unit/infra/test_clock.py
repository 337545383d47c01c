"""Calls that get a deadline."""

import threading

import pytest

from seamlessflow.infra.clock import CallsInTurn, within
from tests.waiting import until


def test_a_call_that_returns_in_time_is_done() -> None:
    done: list[int] = []
    within(60, lambda: done.append(1))
    assert done == [1]


def test_an_error_of_the_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 / 0)


def test_a_call_that_never_returns_is_left() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        within(0.01, threading.Event().wait)


def test_no_call_overtakes_the_one_before_that_had_no_answer_in_time() -> None:
    calls, goes_on, made = CallsInTurn(), threading.Event(), list[str]()

    def first() -> None:
        goes_on.wait()
        made.append("first")

    with pytest.raises(TimeoutError, match="within"):
        calls.within(0.01, first)
    with pytest.raises(TimeoutError, match="the call before has no answer yet"):
        calls.within(60, lambda: made.append("never"))
    goes_on.set()
    until(lambda: not calls.unfinished, "the end of the first call")
    calls.within(60, lambda: made.append("last"))
    assert made == ["first", "last"]


def test_the_error_of_a_call_is_not_that_of_the_next_one() -> None:
    calls, done = CallsInTurn(), list[int]()
    with pytest.raises(ZeroDivisionError):
        calls.within(60, lambda: 1 / 0)
    calls.within(60, lambda: done.append(1))
    assert done == [1]
