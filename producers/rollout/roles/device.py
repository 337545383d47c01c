"""The thread that takes an engine through the steps of `roles.py`, one after the other.

Loading a model takes as long as it takes; meanwhile the main loop goes on writing tokens and
heartbeats. The order inside each step is the contract of the design: verify, pause, load, resume;
abort, sleep. An engine is probed before it serves, but not under turns that were kept: they go on
at once, and a probe would wait in line with them. What fails before the engine was touched is
`NotStarted`; after that it is `Failed`, and the engine is never resumed.
"""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from infra.errors import SeamlessFlowError
from producers.rollout.engine.contract import Engine
from producers.rollout.probe.questions import PROMPT_TEXT
from producers.rollout.roles.outcomes import (
    Acquired,
    Failed,
    Loaded,
    NotStarted,
    Outcome,
    Paused,
    Released,
)
from producers.rollout.roles.steps import Acquire, Load, Release, Weights
from producers.rollout.turns.message_reader import MessageReader
from schemas.records import PolicyWeights


class EngineFactory(Protocol):
    """Makes the engine that the settings name. Called from the device thread; may block."""

    def verify(self, weights: Weights) -> None:
        """Raises `SeamlessFlowError` if the files are not what was published."""

    def build(self, weights: Weights, reader: MessageReader) -> Engine:
        """An engine that runs and serves `weights`."""


class EngineCheck(Protocol):
    """Whether an engine may serve; `EngineProbe` asks it. Both raise `EngineProbeFailed`."""

    def whole(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Of one that was just built."""

    def short(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Of one that was asleep, or has other weights; nothing is sampled on it now."""


class Device:
    """`begin` returns at once; outcomes go to `report`, from the device thread."""

    def __init__(
        self,
        engines: EngineFactory,
        load_reader: Callable[[PolicyWeights], MessageReader],
        follow_slot: Callable[[int], int],
        report: Callable[[Outcome], None],
        check: EngineCheck,
    ) -> None:
        self._engines = engines
        self._check = check
        self._load_reader = load_reader
        self._follow_slot = follow_slot
        self._report = report
        self._engine: Engine | None = None
        self._asleep = False
        self._reader: tuple[tuple[str, bytes], MessageReader] | None = None
        self._steps: queue.SimpleQueue[Acquire | Load | Release | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    def begin(self, step: Acquire | Load | Release) -> None:
        """Queues a step."""
        self._steps.put(step)

    def close(self, timeout_s: float) -> None:
        """Ends the thread after the step under way, and the engine."""
        self._steps.put(None)
        self._thread.join(timeout_s)
        if self._engine is not None:
            self._engine.close()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            try:
                self._report(self._carry_out(step))
            except Exception as error:  # the main loop ends the process with it
                self._report(Failed(step, error))

    def _carry_out(self, step: Acquire | Load | Release) -> Outcome:
        started = time.monotonic()
        if isinstance(step, Release):
            return Released(step, self._free(), _since(started))
        try:
            self._engines.verify(step.weights)
            reader = self._reader_of(step.policy)
        except SeamlessFlowError as error:
            return NotStarted(step, error)
        if isinstance(step, Load):
            return self._load(step, reader)
        engine = self._engine_with(step.weights, reader)
        offset = self._follow_slot(step.slot)
        return Acquired(step, engine, reader, offset, _since(started))

    def _load(self, step: Load, reader: MessageReader) -> Loaded:
        engine, started = self._running(), time.monotonic()
        engine.pause("keep")
        self._report(Paused(step))
        self._change(engine, step.weights)
        return Loaded(step, reader, _since(started))

    def _engine_with(self, weights: Weights, reader: MessageReader) -> Engine:
        prompt = reader.encode(PROMPT_TEXT)
        if self._engine is None:
            self._engine = self._engines.build(weights, reader)
            self._check.whole(self._engine, prompt, weights.version)
            return self._engine
        engine = self._engine
        if self._asleep:
            engine.wake()
            self._asleep = False
        elif engine.health().version != weights.version:
            engine.pause("keep")
        else:
            return engine
        self._change(engine, weights)
        self._check.short(engine, prompt, weights.version)
        return engine

    def _change(self, engine: Engine, weights: Weights) -> None:
        """From paused and awake to running under `weights`."""
        if engine.health().version != weights.version:
            engine.load_weights(Path(weights.directory), weights.version)
        engine.resume()

    def _free(self) -> int:
        engine = self._running()
        engine.pause("abort")
        self._asleep = True
        return engine.sleep()

    def _running(self) -> Engine:
        if self._engine is None:
            raise EngineMissing()
        return self._engine

    def _reader_of(self, policy: PolicyWeights) -> MessageReader:
        key = (policy.tokenizer_directory, policy.renderer)
        if self._reader is None or self._reader[0] != key:
            self._reader = (key, self._load_reader(policy))
        return self._reader[1]


class EngineMissing(SeamlessFlowError):
    """A step needs an engine before the first one was built."""

    def __init__(self) -> None:
        super().__init__("no engine was built yet")


def _since(started: float) -> int:
    return round(1000 * (time.monotonic() - started))
