"""A rollout process's main loop: one thread, one inbox, everything in the order it came.

The reader threads for slot and fleet fill the inbox. So do the engine's thread (dispatches to
advance at once), the device thread (moves' outcomes) and the producer's (failed deliveries).
`RoleKeeper` and `Serving` decide what to do; moves that take time run on the device thread. Built
by `bootstrap.py`. `Counts` has the process's metrics.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from seamlessflow.infra.clock import NEVER_MS
from seamlessflow.infra.errors import DeliveryFailed, SeamlessFlowError
from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.process import ready
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.rollout.engine.contract import EngineHealth
from seamlessflow.producers.rollout.readers import FleetReader, SlotReader
from seamlessflow.producers.rollout.roles.device import RolloutDevice
from seamlessflow.producers.rollout.roles.keeper import RoleKeeper
from seamlessflow.producers.rollout.roles.moves import Outcome
from seamlessflow.producers.rollout.roles.reporter import Reporter
from seamlessflow.producers.rollout.turns.admission import Ignored
from seamlessflow.producers.rollout.turns.dispatch import DispatchOutput, LiveDispatch
from seamlessflow.producers.rollout.turns.serving import Serving
from seamlessflow.schemas.records import TurnCompleted, TurnFailed, TurnInterrupted
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import PROMPTS


class Counts:
    """A rollout process's counters. Main loop only."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tokens = metrics.counter("seamlessflow_rollout_tokens_total")

    def count_record(self, record: DispatchOutput) -> None:
        """Count a turn's record that was sent to the log."""
        if not isinstance(record, TurnFailed):
            self._tokens.inc(len(record.token_ids) // TOKEN_BYTES)
        match record:
            case TurnCompleted():
                self._left("completed", record.finish_reason)
                self._count_control(record)
            case TurnInterrupted():
                self._left("interrupted", record.reason)
            case TurnFailed():
                self._left("failed", record.reason)

    def count_lost(self) -> None:
        """Count a record that could not be delivered."""
        self._metrics.counter("seamlessflow_rollout_records_lost_total").inc()

    def count_ignored(self, ignored: Counter[Ignored]) -> None:
        """Count the slot's ignored records by reason, and take them out of `ignored`."""
        while ignored:
            reason, count = ignored.popitem()
            self._metrics.counter("seamlessflow_rollout_prompts_ignored_total", reason=reason).inc(
                count
            )

    def _count_control(self, record: TurnCompleted) -> None:
        if record.control:
            end = record.token_offset + len(record.token_ids) // TOKEN_BYTES
            ended = "true" if record.control_at == end else "false"
            name = "seamlessflow_rollout_verdicts_total"
            self._metrics.counter(name, ended=ended).inc()
        if record.control_error:
            self._metrics.counter("seamlessflow_rollout_controls_failed_total").inc()

    def _left(self, outcome: str, reason: str) -> None:
        self._metrics.counter(
            "seamlessflow_rollout_turns_total", outcome=outcome, reason=reason
        ).inc()


GRACE_MS = 250
"""Turns that still come within this time after the role was given up are handed back."""

STOP_MS = 120_000
"""A process that has not ended in order after this time ends with an error."""

DEVICE_CLOSE_S = 30.0
FLUSH_S = 10.0
"""Time limit to deliver the last records: Kafka may be unreachable for longer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The report that a turn's record did not reach the log."""

    live: LiveDispatch
    error: DeliveryFailed


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The request to end the process (SIGTERM or Ctrl-C)."""


InboxItem = LiveDispatch | Outcome | Undelivered | StopAsked
WorkerInbox = Inbox[InboxItem]


class EngineBroke(SeamlessFlowError):
    """The engine failed while it served. Its turns were handed back; only a new engine helps."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(f"the engine failed: {error}")


class StopTimedOut(SeamlessFlowError):
    """A process that was asked to end and did not end in time."""

    def __init__(self, waited_ms: int) -> None:
        self.waited_ms = waited_ms
        super().__init__(f"not ended in order within {waited_ms} ms")


@dataclass(eq=False)
class RolloutProcess:
    """A rollout process; `run` is its main thread."""

    _inbox: WorkerInbox
    _keeper: RoleKeeper
    _serving: Serving
    _device: RolloutDevice
    _reporter: Reporter
    _counts: Counts
    _slot: SlotReader
    _fleet: FleetReader
    _producer: Producer
    _clock: Callable[[], int]
    _stop_asked_ms: int = NEVER_MS
    _end_ms: int = NEVER_MS

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set. Raises whatever makes it impossible to continue."""
        threading.Thread(target=self._wait_for, args=(stop,), daemon=True).start()
        self._fleet.start()
        self._slot.start()
        ready(_log, "worker %s is ready to take a role", self._keeper.name)
        try:
            with self._ending():
                self._report(self._clock())
                while (now_ms := self._clock()) < self._end_ms:
                    self._work(now_ms)
            self._reporter.vanish(self._clock())
        finally:
            self._producer.close(FLUSH_S)

    def _work(self, now_ms: int) -> None:
        due_ms = min(self._serving.due_ms, self._reporter.due_ms, self._end_ms)
        items = self._inbox.take(max(0, due_ms - now_ms) / 1000)
        now_ms = self._clock()
        for item in items:
            self._handle(item, now_ms)
        self._serving.advance_due(now_ms)
        if self._serving.engine_failed:
            self._health()  # raises with the engine's own error, if it has one
            raise EngineBroke("it ended turns that were not aborted")
        self._keeper.begin_move(now_ms)
        self._end_when_free(now_ms)
        self._report(now_ms)

    def _handle(self, item: list[Received] | InboxItem, now_ms: int) -> None:
        match item:
            case LiveDispatch():
                self._serving.advance(item, now_ms)
            case list():
                self._read(item, now_ms)
            case Undelivered(live, error):
                # The manager sees no progress and dispatches the turn again.
                _log.error("dispatch %s is dropped: %s", live.request_id, error)
                self._counts.count_lost()
                self._serving.drop(live)
            case StopAsked():
                self._stop_asked_ms = now_ms
                self._keeper.leave(now_ms)
            case _:
                self._keeper.conclude(item, now_ms)

    def _read(self, batch: list[Received], now_ms: int) -> None:
        for received in batch:
            if received.topic == PROMPTS.name:
                self._serving.receive(received, now_ms)
            else:
                self._keeper.apply(received.record)

    def _end_when_free(self, now_ms: int) -> None:
        if now_ms - self._stop_asked_ms > STOP_MS:
            raise StopTimedOut(STOP_MS)
        if self._keeper.gone:
            self._end_ms = min(self._end_ms, now_ms + GRACE_MS)

    def _report(self, now_ms: int) -> None:
        if now_ms >= self._reporter.due_ms:
            self._counts.count_ignored(self._serving.admission.ignored)
        service = self._serving.service
        self._reporter.follow(None if service is None else service.engine)
        state = self._keeper.state
        activity = self._keeper.activity
        self._reporter.tick(state, activity, self._health, self._serving.tokens, now_ms)

    def _health(self) -> EngineHealth | None:
        """Return the engine's health, or None without an engine. Raises `EngineBroke`."""
        service = self._serving.service
        health = None if service is None else service.engine.health()
        if health is not None and health.error is not None:
            raise EngineBroke(health.error)
        return health

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End all threads, in order or after an error. After an error, first hand back the turns
        and write a heartbeat that says so."""
        try:
            yield
        except BaseException:
            with suppress(SeamlessFlowError):
                self._serving.leave("engine_failed", self._clock())
                self._reporter.beat("failed", None, self._clock())
            raise
        finally:
            # A reader that waits for room in the inbox would never end.
            self._inbox.close()
            self._slot.close()
            self._fleet.close()
            self._device.close(DEVICE_CLOSE_S)

    def _wait_for(self, stop: threading.Event) -> None:
        stop.wait()
        self._inbox.post(StopAsked())
