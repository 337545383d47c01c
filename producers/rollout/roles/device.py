"""The thread that takes an engine through the moves from `roles.py`, one after the other.

A move may take minutes. Meanwhile the main loop goes on writing tokens and heartbeats. The order
within a move must not change: verify, pause, load, resume; abort, sleep. While the trainer holds
the device, new weights are verified, and loaded if the engine can load asleep.

An engine is probed before it serves, but not after a load under kept turns. Those turns go on at
once, and a probe would queue behind them. A failure before the engine was touched is `NotStarted`.
After that it is `MoveFailed`, and the engine is never resumed. A lease keeps the trainer from
deleting the files until they are loaded. If they were deleted before, or there can be no lease, the
move is `NotStarted`. Moves name the published directories; this thread works with this host's own
directories (`places.py`).
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.manifest import read_manifest
from seamlessflow.infra.weights.versions import PublishedWeights, WeightsGone, lease
from seamlessflow.infra.worker.activity import PhaseTimes
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.probe.questions import PROMPT_TEXT
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    Acquired,
    DeviceMove,
    Load,
    Loaded,
    MoveFailed,
    NotStarted,
    Outcome,
    Paused,
    Preload,
    Preloaded,
    Release,
    Released,
)
from seamlessflow.producers.rollout.roles.places import WeightsPlaces
from seamlessflow.producers.rollout.turns.message import MessageParser
from seamlessflow.schemas.records import PolicyWeights


class EngineFactory(Protocol):
    """Maker of the engine that the settings name. Called from the device thread; may block."""

    whole_vocabulary: bool
    """True if log-probs cover the whole vocabulary also under top-p and top-k."""

    loads_asleep: bool
    """True if its engines load weights also while they sleep."""

    def verify(self, weights: PublishedWeights) -> None:
        """Raise `SeamlessFlowError` if the files are not what was published."""

    def build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Return a running engine with `weights`."""


class EngineCheck(Protocol):
    """A check that an engine may serve, such as `EngineProbe`. Raises `EngineProbeFailed`."""

    def whole(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Check an engine that was just built."""

    def short(self, engine: Engine, prompt: bytes, version: int) -> None:
        """Check an idle engine that was asleep, or has other weights."""


@dataclass(eq=False)
class RolloutDevice:
    """The device thread and its engine; outcomes go to `report`, called on this thread."""

    _engines: EngineFactory
    _load_parser: Callable[[PolicyWeights], MessageParser]
    _follow_slot: Callable[[int], int]
    _report: Callable[[Outcome], None]
    _check: EngineCheck
    _places: WeightsPlaces
    _engine: Engine | None = None
    _asleep: bool = False
    _loaded: PublishedWeights | None = None
    """The weights in the engine, which were verified before they were loaded."""
    _verified: PublishedWeights | None = None
    """The weights verified last, so that their files are not read twice."""
    _parser: tuple[tuple[str, bytes], MessageParser] | None = None
    _moves: queue.SimpleQueue[tuple[DeviceMove, PhaseTimes] | None] = field(
        default_factory=queue.SimpleQueue
    )

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    def begin(self, move: DeviceMove, times: PhaseTimes) -> None:
        """Queue a move, whose phases go into `times`. Does not block."""
        self._moves.put((move, times))

    def close(self, timeout_s: float) -> None:
        """End the thread after the move under way, and then the engine. Blocks.

        An engine that is still being built ends with the process: building cannot be cut short.
        """
        self._moves.put(None)
        if self._engine is not None:
            self._thread.join(timeout_s)
            self._engine.close()

    def _run(self) -> None:
        while (queued := self._moves.get()) is not None:
            move, times = queued
            times.end("start")
            try:
                self._report(self._carry_out(move, times))
            except Exception as error:  # the main loop raises it and ends the process
                self._report(MoveFailed(move, error))

    def _carry_out(self, move: DeviceMove, times: PhaseTimes) -> Outcome:
        if isinstance(move, Release):
            return Released(move, self._free(times), times)
        # Nothing is changed yet: if the files are bad, the engine goes on with what it has.
        try:
            weights = self._here(move)
        except SeamlessFlowError as error:
            return NotStarted(move, error)
        with lease(weights.path):
            try:
                parser = self._parser_for(move.policy, weights)
            except SeamlessFlowError as error:
                return NotStarted(move, error)
            times.end("verify")
            if isinstance(move, Load):
                return self._load(move, weights, parser)
            if isinstance(move, Preload):
                return self._preload(move, weights)
            return self._acquire(move, weights, parser, times)

    def _here(self, move: Acquire | Load | Preload) -> PublishedWeights:
        """Return a move's weights with a directory on this host."""
        if self._loaded == move.weights:
            return self._loaded  # the files are not needed
        if self._verified == move.weights and self._verified.path.is_dir():
            return self._verified
        return self._places.weights(move.weights, move.policy.policy)

    def _parser_for(self, policy: PolicyWeights, weights: PublishedWeights) -> MessageParser:
        """Check that the move can be made; return its policy's parser."""
        if not self._known(weights):
            self._engines.verify(_as_made(weights, policy))
            self._verified = weights
        if truncated(policy) and not self._engines.whole_vocabulary:
            raise TruncationUnsupported(policy.policy)
        return self._parser_of(policy)

    def _known(self, weights: PublishedWeights) -> bool:
        """Return True for weights in the engine, and for verified ones that are still on disk."""
        verified = weights == self._verified and weights.path.is_dir()
        return verified or weights == self._loaded

    def _acquire(
        self, move: Acquire, weights: PublishedWeights, parser: MessageParser, times: PhaseTimes
    ) -> Outcome:
        try:
            engine = self._engine_with(weights, parser, times)
        except WeightsGone as error:
            return NotStarted(move, error)
        offset = self._follow_slot(move.slot)
        times.end("slot")
        return Acquired(move, engine, parser, offset, times)

    def _preload(self, move: Preload, weights: PublishedWeights) -> Preloaded:
        if self._engines.loads_asleep:
            self._change(self._running(), weights)
        return Preloaded(move)

    def _load(self, move: Load, weights: PublishedWeights, parser: MessageParser) -> Loaded:
        engine = self._running()
        started = time.monotonic()
        engine.pause("keep")
        # Before the load, which takes long: turns pinned to the old version are handed back now.
        self._report(Paused(move))
        self._change(engine, weights)
        engine.resume()
        return Loaded(move, parser, _since(started))

    def _engine_with(
        self, weights: PublishedWeights, parser: MessageParser, times: PhaseTimes
    ) -> Engine:
        prompt = parser.encode(PROMPT_TEXT)
        if self._engine is None:
            self._engine = self._build(weights, parser)
            self._loaded = weights
            times.end("build")
            self._check.whole(self._engine, prompt, weights.version)
            times.end("probe")
            return self._engine
        engine = self._engine
        if self._asleep:
            engine.wake()
            self._asleep = False
            times.end("wake")
        elif weights != self._loaded:
            engine.pause("keep")
        else:
            return engine  # it runs with these weights: the role was only confirmed
        self._change(engine, weights)
        engine.resume()
        times.end("load")
        self._check.short(engine, prompt, weights.version)
        times.end("probe")
        return engine

    def _build(self, weights: PublishedWeights, parser: MessageParser) -> Engine:
        """Build the engine. Raises `WeightsGone` if that failed since the files were deleted."""
        try:
            return self._engines.build(weights, parser)
        except Exception as error:
            if weights.path.is_dir():
                raise
            raise WeightsGone(weights.directory) from error

    def _change(self, engine: Engine, weights: PublishedWeights) -> None:
        """Load `weights` into a paused engine, if it has others."""
        if weights != self._loaded:
            engine.load_weights(weights.path, weights.version)
            self._loaded = weights

    def _free(self, times: PhaseTimes) -> int:
        engine = self._running()
        engine.pause("abort")
        times.end("pause")
        self._asleep = True
        freed = engine.sleep()
        times.end("sleep")
        return freed

    def _running(self) -> Engine:
        if self._engine is None:
            raise EngineMissing()
        return self._engine

    def _parser_of(self, policy: PolicyWeights) -> MessageParser:
        key = (policy.tokenizer_directory, policy.renderer)
        if self._parser is None or self._parser[0] != key:
            self._parser = (key, self._load_parser(self._places.tokenizer(policy)))
        return self._parser[1]


def _as_made(weights: PublishedWeights, policy: PolicyWeights) -> PublishedWeights:
    """Return weights under the version number that they were made with, from their manifest.

    A frozen policy that serves another policy's versions has its own numbers. Raises
    `WeightsInvalid`.
    """
    if not policy.frozen:
        return weights
    return replace(weights, version=read_manifest(weights.path).version)


def truncated(policy: PolicyWeights) -> bool:
    """Return whether the policy's turns are trained although top-p or top-k leaves tokens out."""
    top_p = policy.overrides.top_p
    top_k = policy.overrides.top_k
    trained = policy.train_truncated or policy.train_inexact
    return trained and ((top_p or 1.0) < 1 or (top_k or 0) > 0)


class TruncationUnsupported(SeamlessFlowError):
    """A policy trained under top-p or top-k, with an engine whose log-probs leave tokens out."""

    lasting = True

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(
            f"policy {policy} is to be trained with top-p or top-k (policy.train_truncated or "
            "policy.train_inexact), and this engine reports log-probs among the tokens kept only: "
            "set policy.top_p = 1 and policy.top_k = 0, or rollout.engine = torch"
        )


class EngineMissing(SeamlessFlowError):
    """A move needs an engine before the first one was built."""

    def __init__(self) -> None:
        super().__init__("no engine was built yet")


def _since(started: float) -> int:
    return round(1000 * (time.monotonic() - started))
