"""The parts that the trainer and a training process share, and how they begin and end.

The main thread may wait for minutes, when it loads a model or saves at the end. So heartbeats have
their own thread. Long work (a step, a checkpoint, moving memory) has another thread, which does one
piece at a time.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas.records import (
    BatchReady,
    GroupDropped,
    GroupReady,
    Record,
    RunFinished,
    SampleFailed,
    StepSkipped,
    WorkerUsage,
)
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.trainer.roles.gang import GangWatch
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings

_END_TIMEOUT_S = 10
_OfPolicy = BatchReady | GroupDropped | GroupReady | RunFinished | SampleFailed | StepSkipped
T = TypeVar("T")


@dataclass(slots=True)
class TrainerStatus:
    """The process's state as heartbeats report it; the loop's thread writes it."""

    state: str = "starting"
    """`starting`, `ready`, `asleep`, `training`, `ended` (in order) or `failed`."""
    version: int | None = None
    """Policy version in memory."""
    step: int = 0
    """Next optimizer step."""
    ending: bool = False
    """True once the process ends in order."""


@dataclass(eq=False)
class Heartbeat:
    """The thread that sends what `record` returns to `fleet`, and `usage` to `control`."""

    _settings: TrainerSection
    _producer: Producer
    _record: Callable[[], Record]
    _usage: Callable[[], WorkerUsage | None]
    """Returns the activity since its last call, None if there was no role in that time."""
    _now_ms: Callable[[], int]
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._reported_ms = self._now_ms()
        self._thread = threading.Thread(target=self._run, name="trainer heartbeat", daemon=True)

    def start(self) -> None:
        """Send the first heartbeat, then start the thread."""
        self.send()
        self._thread.start()

    def send(self) -> None:
        """Send a heartbeat at once, from any thread."""
        record = self._record()
        self._producer.send(FLEET.name, record, key=fleet_key(record))

    def report_activity(self) -> None:
        """Send the activity since the last report, unless there was no role in that time."""
        self._reported_ms = self._now_ms()
        if record := self._usage():
            self._producer.send(CONTROL.name, record)

    def close(self) -> None:
        """End the thread, then send a last heartbeat and a last activity record."""
        self._ending.set()
        self._thread.join(_END_TIMEOUT_S)
        self.send()
        self.report_activity()

    def _run(self) -> None:
        while not self._ending.wait(self._settings.heartbeat_s):
            self.send()
            if self._now_ms() - self._reported_ms >= self._settings.usage_s * 1000:
                self.report_activity()


class Work:
    """The piece of work under way, if any. All methods are for the loop's thread.

    Only the piece itself runs in the work thread. `collect` and `finish` handle its result and its
    error in the loop's thread, so only one thread changes state.
    """

    def __init__(self, finished: Callable[[], None] = lambda: None) -> None:
        """`finished` is called from the work thread after each piece."""
        self._finished = finished
        self._pool = ThreadPoolExecutor(1, "trainer work")
        self._pending: tuple[Future[Any], Callable[[Any], None]] | None = None

    @property
    def idle(self) -> bool:
        """Return whether no piece is under way."""
        return self._pending is None

    def begin(self, work: Callable[[], T], after: Callable[[T], None]) -> None:
        """Run `work` in the work thread; `collect` or `finish` call `after` with its result."""
        self._pending = self._pool.submit(work), after
        self._pending[0].add_done_callback(lambda _: self._finished())

    def collect(self) -> bool:
        """Collect a finished piece; return whether none is under way now. Raise its error."""
        if self._pending is not None and self._pending[0].done():
            self._collect_result()
        return self.idle

    def finish(self) -> None:
        """Wait for the piece under way. Raise its error."""
        # `after` may begin another piece.
        while self._pending is not None:
            self._collect_result()

    def close(self) -> None:
        """Wait for the thread; the result of its piece is lost."""
        self._pool.shutdown(cancel_futures=True)

    def _collect_result(self) -> None:
        if self._pending is not None:
            running, after = self._pending
            result = running.result()
            # Before `after`, which may begin the next piece.
            self._pending = None
            after(result)


@dataclass(frozen=True, slots=True)
class Wake:
    """An inbox item that only ends the loop's wait, since a piece of work is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessParts:
    """One process, without its model and its decisions."""

    settings: TrainerSettings
    producer: Producer
    gang: GangWatch
    status: TrainerStatus
    heartbeat: Heartbeat
    control: ReaderThread
    """Reads `control` (a training process: `fleet` also) into the inbox."""
    inbox: Inbox[Wake]
    work: Work
    now_ms: Callable[[], int]

    def wake(self) -> None:
        """End the loop's wait, from any thread."""
        self.inbox.post(Wake())

    def send(self, *records: Record) -> None:
        """Append records to `control`, under the policy that is trained."""
        policy = self.settings.run.policy
        for record in records:
            named = replace(record, policy=policy) if isinstance(record, _OfPolicy) else record
            self.producer.send(CONTROL.name, named)

    def give_up(self) -> None:
        """End a process that could not be assembled; its last heartbeat says so."""
        self.status.state = "failed"
        self.heartbeat.close()
        self.producer.close()

    @contextmanager
    def running(self, *readers: ReaderThread, end: Callable[[], None]) -> Iterator[None]:
        """Start the reader for `control` and `readers`; when the body ends, close everything.

        `end` is called first then: it ends what the work thread may wait for. The last heartbeat
        has the state `ended`, or after an error `failed`.
        """
        started = [self.control, *readers]
        try:
            for reader in started:
                reader.start()
            yield
        except BaseException:
            self.status.state = "failed"
            raise
        else:
            self.status.state = ENDED
        finally:
            end()
            # A reader that waits for room in the inbox would never end.
            self.inbox.close()
            for reader in started:
                reader.close()
            self.work.close()
            # The last heartbeat needs the producer.
            self.heartbeat.close()
            self.producer.close()
