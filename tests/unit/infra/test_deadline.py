"""Calls that get a deadline."""

import threading

import pytest

from infra.deadline import within


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
