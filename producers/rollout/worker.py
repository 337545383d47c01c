"""The main loop of a rollout process: one thread, one inbox, everything in the order it came.

What to do is decided by `roles.py` and `turns.py`; steps that take time are carried out by
`device.py`. Built by `bootstrap.py`.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from infra.errors import SeamlessFlowError
from infra.kafka import Producer, Received
from producers.rollout import announcements as records
from producers.rollout.admission import Admission
from producers.rollout.announcements import State
from producers.rollout.device import Device
from producers.rollout.device_outcomes import (
    Acquired,
    Failed,
    Loaded,
    NotStarted,
    Outcome,
    Paused,
    Released,
)
from producers.rollout.engine import EngineHealth
from producers.rollout.fleet_reader import FleetReader
from producers.rollout.inbox import Inbox, Item, Stopped, ThreadFailed, Undelivered
from producers.rollout.live_turn import LiveTurn
from producers.rollout.reporter import Reporter
from producers.rollout.role_steps import Load, Rejoin, Release
from producers.rollout.roles import Roles
from producers.rollout.serving import Service, Serving
from producers.rollout.slot_reader import SlotReader
from producers.rollout.usage import Activity
from schemas.topics import PROMPTS

GRACE_MS = 250
"""How long turns are still handed back after the role was given up, before the process ends."""

STOP_MS = 120_000
"""A process that has not ended in order by then ends with an error."""

CLOSE_S = 30.0
_NEVER_MS = 2**62
_log = logging.getLogger(__name__)


class EngineBroke(SeamlessFlowError):
    """The engine failed while it served; its turns were handed back. Only a new process helps."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(f"the engine failed: {error}")


class StopTimedOut(SeamlessFlowError):
    """The process was asked to end and did not get there."""

    def __init__(self, waited_ms: int) -> None:
        self.waited_ms = waited_ms
        super().__init__(f"not ended in order within {waited_ms} ms")


class Worker:
    """`run` is the process."""

    def __init__(
        self,
        inbox: Inbox,
        roles: Roles,
        serving: Serving,
        device: Device,
        reporter: Reporter,
        slot: SlotReader,
        fleet: FleetReader,
        producer: Producer,
        clock: Callable[[], int],
    ) -> None:
        self._inbox = inbox
        self._roles = roles
        self._serving = serving
        self._device = device
        self._reporter = reporter
        self._slot = slot
        self._fleet = fleet
        self._producer = producer
        self._clock = clock
        self._handed_back = 0
        self._paused = False
        self._stop_asked_ms = _NEVER_MS
        self._end_ms = _NEVER_MS

    def run(self, stop: threading.Event) -> None:
        """Serves until `stop` is set. Raises whatever makes going on impossible."""
        threading.Thread(target=self._wait_for, args=(stop,), daemon=True).start()
        self._fleet.start()
        self._slot.start()
        with self._ending():
            self._report(self._clock())
            while (now_ms := self._clock()) < self._end_ms:
                self._work(now_ms)
        self._reporter.vanish()
        self._producer.close(CLOSE_S)

    def _work(self, now_ms: int) -> None:
        due_ms = min(self._serving.due_ms, self._reporter.due_ms, self._end_ms)
        items = self._inbox.take(max(0, due_ms - now_ms) / 1000)
        now_ms = self._clock()
        for item in items:
            self._handle(item, now_ms)
        self._serving.advance_due(now_ms)
        if self._serving.engine_failed:
            raise EngineBroke(self._engine_error())
        self._begin_step(now_ms)
        self._end_when_free(now_ms)
        self._report(now_ms)

    def _handle(self, item: Item, now_ms: int) -> None:
        match item:
            case LiveTurn():
                self._serving.advance(item, now_ms)
            case list():
                self._read(item, now_ms)
            case Undelivered(live, error):
                _log.error("turn %s is given up: %s", live.request_id, error)
                self._serving.drop(live)
            case Stopped():
                self._stop(now_ms)
            case ThreadFailed(error):
                raise error
            case _:
                self._conclude(item, now_ms)

    def _read(self, batch: list[Received], now_ms: int) -> None:
        for received in batch:
            if received.topic == PROMPTS.name:
                self._serving.receive(received, now_ms)
            else:
                self._roles.apply(received.record)

    def _begin_step(self, now_ms: int) -> None:
        step = self._roles.next_step()
        if step is None:
            return
        if isinstance(step, Rejoin):
            self._rejoin()
            return
        _log.info("%s", step)
        if isinstance(step, Release):
            reason = "shutdown" if self._roles.leaving else "preempted"
            self._handed_back += self._serving.leave(reason, now_ms)
        self._roles.begin()
        self._device.begin(step)

    def _conclude(self, outcome: Outcome, now_ms: int) -> None:
        match outcome:
            case Acquired():
                self._serve(outcome, now_ms)
            case Paused(step):
                self._pause(step, now_ms)
            case Loaded():
                self._resume(outcome, now_ms)
            case Released():
                self._released(outcome, now_ms)
            case NotStarted(step, error):
                if not self._roles.given_up(step):
                    raise error
                _log.warning("version %d is left out: %s", step.weights.version, error)
            case Failed(_, error):
                raise error

    def _serve(self, outcome: Acquired, now_ms: int) -> None:
        if not self._roles.acquired(outcome.step):
            return
        policy, version = outcome.step.policy, outcome.step.weights.version
        self._serving.service = Service(
            outcome.engine, outcome.reader, policy.policy, policy.max_context, version
        )
        self._serving.adopt(version, now_ms)
        self._reporter.announce(records.role_acquired(self._roles, outcome, now_ms))

    def _pause(self, step: Load, now_ms: int) -> None:
        self._paused = True
        self._serving.adopt(step.weights.version, now_ms)
        running = len(self._serving.running)
        self._reporter.announce(records.generation_paused(self._roles, running, now_ms))

    def _resume(self, outcome: Loaded, now_ms: int) -> None:
        self._paused = False
        self._roles.loaded_weights(outcome.step)
        if self._serving.service is not None:
            self._serving.service.reader = outcome.reader
        self._reporter.announce(records.weights_loaded(self._roles, outcome, now_ms))
        self._reporter.announce(records.generation_resumed(self._roles, outcome, now_ms))

    def _released(self, outcome: Released, now_ms: int) -> None:
        record = records.role_released(self._roles, outcome, self._handed_back, now_ms)
        self._roles.released()
        self._reporter.announce(record)
        self._handed_back = 0

    def _rejoin(self) -> None:
        lost = self._roles.incarnation
        self._roles.renew(new_incarnation())
        _log.warning("the scheduler gave %s up; going on as %s", lost, self._roles.incarnation)
        self._serving.admission = Admission(self._roles.worker, self._roles.incarnation)
        self._reporter.rejoin()

    def _stop(self, now_ms: int) -> None:
        self._roles.leave()
        self._stop_asked_ms = now_ms
        self._handed_back += self._serving.leave("shutdown", now_ms)

    def _end_when_free(self, now_ms: int) -> None:
        if now_ms - self._stop_asked_ms > STOP_MS:
            raise StopTimedOut(STOP_MS)
        if self._roles.leaving and not (self._roles.busy or self._roles.awake):
            self._end_ms = min(self._end_ms, now_ms + GRACE_MS)

    def _report(self, now_ms: int) -> None:
        health = self._health() if now_ms >= self._reporter.due_ms else None
        tokens = self._serving.tokens
        self._reporter.tick(self._state(), self._activity(), health, tokens, now_ms)

    def _state(self) -> State:
        if self._paused:
            return "paused"
        if self._roles.held is not None:
            return "ready"
        return "starting" if self._roles.busy or not self._roles.joined else "asleep"

    def _activity(self) -> Activity:
        if self._roles.busy:
            return "loading"
        if self._serving.running:
            return "decoding"
        return "idle" if self._roles.held is not None else "none"

    def _health(self) -> EngineHealth | None:
        service = self._serving.service
        return None if service is None else service.engine.health()

    def _engine_error(self) -> str:
        health = self._health()
        return str(health and health.error)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """In order or by an error: turns go back, threads end; an error is seen in a heartbeat."""
        try:
            yield
        except BaseException:
            with suppress(SeamlessFlowError):
                self._serving.leave("engine_failed", self._clock())
                self._reporter.beat("failed", None, self._clock())
                self._producer.flush(CLOSE_S)
            raise
        finally:
            self._slot.close()
            self._fleet.close()
            self._device.close(CLOSE_S)

    def _wait_for(self, stop: threading.Event) -> None:
        stop.wait()
        self._inbox.put(Stopped())


def new_incarnation() -> str:
    """An id that no process start had before."""
    return uuid.uuid4().hex[:12]
