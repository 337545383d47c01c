"""The queue at which main threads wait: its limit, its order, and a signal during the wait."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from tests.builders.records import control
from tests.waiting import until

WAIT_S = 0.1
RESCUE_S = 5.0
TIMEOUT_S = 10
LIMIT = 6


def received(offset: int, size: int = 0) -> Received:
    record = control.finished()
    return Received("control", 0, offset, 0, None, (), record, size)


class EndlessReader(Reader):
    """Reads four more records at each poll."""

    def __init__(self, size: int) -> None:
        self.offset = 0
        self._size = size

    def poll(self, timeout_s: float) -> list[Received]:
        self.offset += 4
        return [received(self.offset - 4 + number, self._size) for number in range(4)]

    def close(self) -> None:
        pass


def endless(inbox: Inbox[str], size: int = 0) -> tuple[EndlessReader, ReaderThread]:
    reader = EndlessReader(size)
    return reader, ReaderThread("endless", reader, inbox.put, inbox.fail).start()


@pytest.mark.parametrize(
    ("limits", "size"),
    [({"limit": LIMIT}, 0), ({"limit_bytes": LIMIT}, 1)],
    ids=["records", "bytes"],
)
def test_a_reader_reads_ahead_no_further_than_the_limit(limits: dict[str, int], size: int) -> None:
    """By records alone, a manager that lags would hold thousands of message histories."""
    inbox = Inbox[str](**limits)
    reader, thread = endless(inbox, size)
    until(lambda: reader.offset == 12, "the reader to wait for room")
    time.sleep(WAIT_S)
    assert reader.offset == 12, "two batches fill the inbox, the third waits"
    assert [len(batch) for batch in inbox.take(0)] == [4, 4]
    until(lambda: reader.offset == 20, "the reader to go on")
    inbox.close()
    thread.close()


def test_a_batch_over_the_limit_passes_alone() -> None:
    inbox = Inbox[str](limit_bytes=LIMIT)
    inbox.put([received(0, 10 * LIMIT)])
    assert inbox.get(0) == [received(0, 10 * LIMIT)]


def test_what_must_not_wait_enters_a_full_inbox() -> None:
    inbox = Inbox[str](LIMIT)
    reader, thread = endless(inbox)
    until(lambda: reader.offset == 12, "the reader to wait for room")
    inbox.post("a failed delivery")
    assert "a failed delivery" in inbox.take(0)
    inbox.close()
    thread.close()


def test_closing_releases_a_reader_that_waits() -> None:
    inbox = Inbox[str](LIMIT)
    reader, thread = endless(inbox)
    until(lambda: reader.offset == 12, "the reader to wait for room")
    inbox.close()
    began = time.monotonic()
    thread.close()
    assert time.monotonic() - began < TIMEOUT_S


def test_everything_that_is_there_is_taken_in_order() -> None:
    inbox = Inbox[str]()
    inbox.put([received(0), received(1)])
    inbox.post("a")
    assert inbox.get(0) == [received(0), received(1)]
    inbox.put([received(2)])
    assert inbox.take(0.01) == ["a", [received(2)]]
    assert (inbox.get(0.01), inbox.take(0.01)) == (None, [])


def test_records_are_held_back_until_they_are_let_go() -> None:
    inbox, passed = Inbox[str](), threading.Event()
    inbox.hold(True)

    def deliver() -> None:
        inbox.put([received(5)])
        passed.set()

    thread = threading.Thread(target=deliver)
    thread.start()
    assert not passed.wait(0.05)
    assert inbox.take(0.01) == []
    inbox.hold(False)
    assert passed.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)
    assert inbox.take(0.01) == [[received(5)]]


def test_a_thread_that_died_is_an_error_of_the_main_thread_after_what_it_had_put() -> None:
    inbox = Inbox[str]()
    inbox.post("a")
    inbox.fail(OSError("broken"))
    assert inbox.take(0.01) == ["a"]
    with pytest.raises(OSError, match="broken"):
        inbox.take(0.01)


@pytest.fixture
def interrupted() -> Iterator[threading.Event]:
    """A signal in the midst of the wait; its handler takes longer than what is left of that."""
    handled = threading.Event()

    def handle(*_: object) -> None:
        time.sleep(WAIT_S)
        handled.set()

    before = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Timer(WAIT_S / 2, os.kill, (os.getpid(), signal.SIGUSR1))
    sender.start()
    yield handled
    sender.join()
    signal.signal(signal.SIGUSR1, before)


def test_a_wait_ends_in_time_after_a_signal(interrupted: threading.Event) -> None:
    inbox = Inbox[str]()
    rescue = threading.Timer(RESCUE_S, inbox.put, ([received(0)],))
    rescue.start()
    try:
        while not interrupted.is_set():
            assert not inbox.take(WAIT_S), "it waited until something came"
    finally:
        rescue.cancel()
        rescue.join()
