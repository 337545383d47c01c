"""The queues at which main threads wait, when a signal comes meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from consumers.trajectories.bus.inbox import Inbox as ManagerInbox
from infra.kafka.client import Received
from producers.rollout.inbox import Inbox as WorkerInbox
from schemas.records import RunFinished
from trainer.inbox import Inbox as TrainerInbox

WAIT_S = 0.1
RESCUE_S = 5.0
Inbox = ManagerInbox | WorkerInbox | TrainerInbox


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


@pytest.mark.parametrize("kind", [ManagerInbox, WorkerInbox, TrainerInbox])
def test_a_wait_ends_in_time_after_a_signal(
    kind: Callable[[], Inbox], interrupted: threading.Event
) -> None:
    inbox = kind()
    record = Received("control", 0, 0, 0, None, (), RunFinished(at_ms=0, steps=1, reason=""))
    rescue = threading.Timer(RESCUE_S, inbox.put, ([record],))
    rescue.start()
    try:
        while not interrupted.is_set():
            assert not list(inbox.take(WAIT_S) or ()), "it waited until something came"
    finally:
        rescue.cancel()
        rescue.join()
