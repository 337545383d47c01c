"""Turns that this worker samples: its slot's records go to the engine, tokens to `sessions`.

Main loop only. While the worker does not hold its role, it hands back at once what the manager
sends. The turn then continues elsewhere before its deadline.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from seamlessflow.infra.clock import NEVER_MS
from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.producer import OnDelivery
from seamlessflow.infra.rendering.completion import MessageStream
from seamlessflow.infra.telemetry.names import PROVIDER
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams
from seamlessflow.producers.rollout.engine.errors import EngineStateInvalid, RequestInvalid
from seamlessflow.producers.rollout.turns.admission import Admission
from seamlessflow.producers.rollout.turns.dispatch import (
    Dispatch,
    DispatchOutput,
    LiveDispatch,
    sampling_params,
)
from seamlessflow.producers.rollout.turns.message import MessageParser, template_prompt
from seamlessflow.producers.rollout.turns.refusal import (
    Refusal,
    bad_request,
    failed,
    refusal,
    refused,
    unstarted,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import Headers

SCAN_MS = 20
"""Time between two looks for dispatches that are due: one look serves many of them."""


HELD_MS = 1_000
"""A turn waits this long for weights whose publication this worker has not read yet."""

Write = Callable[[DispatchOutput, int, Headers, OnDelivery], None]
"""Writes a turn's record to the given partition of `sessions`."""


@dataclass(slots=True)
class Service:
    """The engine and the policy version served while the role is held."""

    engine: Engine
    parser: MessageParser
    policy: str
    max_context: int
    version: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn that is to be submitted once the engine has new enough weights."""

    live: LiveDispatch
    sampling: SamplingParams
    since_ms: int


@dataclass(eq=False)
class Serving:
    """The dispatches under way. `service` is None while the role is not held."""

    admission: Admission
    _write: Write
    _wake: Callable[[LiveDispatch], None]
    _undelivered: Callable[[LiveDispatch, DeliveryFailed], None]
    _telemetry: Telemetry
    _rules: UsedRules = field(default_factory=UsedRules)
    """Rules that end turns early."""
    service: Service | None = None
    running: dict[str, LiveDispatch] = field(default_factory=dict)
    tokens: int = 0
    """Tokens written since the process began."""
    engine_failed: bool = False
    """True once the engine ended a request by itself."""
    due_ms: int = NEVER_MS
    _held: dict[str, _Begun] = field(default_factory=dict)
    """Turns among `running` that wait for newer weights, by id."""
    _away_reason: str = "preempted"

    def receive(self, received: Received, now_ms: int) -> None:
        """Act on a record from the slot."""
        match received.record:
            case r.GenerateTurn() as request:
                if self.admission.admits(request):
                    with self._telemetry.process(received, session_id=request.session_id) as span:
                        self._start(request, span.headers or received.headers, now_ms)
            case r.CancelGeneration() as cancel:
                self._cancel(cancel, now_ms)

    def advance(self, live: LiveDispatch, now_ms: int) -> None:
        """Write a dispatch's record, if one is due now."""
        if live.ended:  # a chunk woke the main loop before it ended the dispatch
            return
        record = live.dispatch.advance(live.new_chunks(), now_ms)
        if isinstance(record, r.TurnInterrupted):
            self.engine_failed = True
        if record is not None:
            self._put(live, record)
        self.due_ms = min(self.due_ms, live.dispatch.due_ms)

    def advance_due(self, now_ms: int) -> None:
        """Advance the dispatches whose time has come."""
        if now_ms < self.due_ms:
            return
        for live in list(self.running.values()):
            if live.dispatch.due_ms <= now_ms:
                self.advance(live, now_ms)
        earliest = min((live.dispatch.due_ms for live in self.running.values()), default=NEVER_MS)
        self.due_ms = max(earliest, now_ms + SCAN_MS)

    def leave(self, reason: str, now_ms: int) -> int:
        """Hand back all turns, and those still to come; return how many were not finished."""
        self._away_reason = reason
        turns = list(self.running.values())
        handed_back = sum(self._hand_back(live, reason, now_ms) for live in turns)
        self.service = None
        return handed_back

    def adopt(self, version: int, now_ms: int) -> None:
        """Note that another version samples from here on; hand back turns pinned to the old one."""
        if self.service is not None:
            self.service.version = version
        for live in list(self.running.values()):
            if live.dispatch.request.pinned_version not in (None, version):
                self._hand_back(live, "paused", now_ms)
        self._begin_held(now_ms)

    @property
    def waits(self) -> bool:
        """True if a turn waits for newer weights."""
        return bool(self._held)

    def begin_overdue(self, now_ms: int, loads: bool) -> None:
        """Begin turns that waited too long, unless newer weights are to be loaded (`loads`)."""
        if self._held and not loads:
            self._begin_held(now_ms, now_ms - HELD_MS)

    def drop(self, live: LiveDispatch) -> None:
        """End a dispatch without a record: a record after a lost one would not count."""
        if not live.ended:
            self._end(live)

    def _start(self, request: r.GenerateTurn, headers: Headers, now_ms: int) -> None:
        older = self.running.get(request.turn_id)
        if older is not None:  # the manager ignores the records of all but the newest dispatch
            self.drop(older)
        service = self.service
        if service is None:
            back = unstarted(request, self._away_reason, now_ms)
            self._write(back, request.partition, headers, _ignore_delivery)
            return
        why = refusal(request, service.policy, service.version, service.max_context, now_ms)
        if why is None:
            why = self._submit(service, request, headers, now_ms)
        if why is not None:
            self._write(failed(request, why, now_ms), request.partition, headers, _ignore_delivery)

    def _submit(
        self, service: Service, request: r.GenerateTurn, headers: Headers, now_ms: int
    ) -> Refusal | None:
        parser = service.parser
        try:
            stops = parser.stop_token_ids
            control = self._rules.controlled(request, parser.thinking_marks, stops)
            sampling = sampling_params(request, stops, service.max_context, control)
            dispatch = Dispatch(request, _stream(parser, request), now_ms, stops, control)
        except ValueError as error:
            return bad_request(str(error))
        # Before `submit`: the engine may deliver the first chunk before that returns.
        begun = _Begun(self._enter(dispatch, headers), sampling, now_ms)
        self.due_ms = min(self.due_ms, dispatch.due_ms)
        if request.min_version is not None and service.version < request.min_version:
            self._held[request.turn_id] = begun
            return None
        return self._give(service, begun, now_ms)

    def _give(self, service: Service, begun: _Begun, now_ms: int) -> Refusal | None:
        """Give a turn to the engine."""
        live = begun.live
        request = live.dispatch.request
        try:
            service.engine.submit(
                live.request_id,
                request.prompt_ids,
                request.completion_ids,
                begun.sampling,
                live.on_chunk,
                request.computed,
            )
        except RequestInvalid as error:
            self._forget(live)
            return refused(error)
        except EngineStateInvalid:  # the main loop ends the process after this round
            self.engine_failed = True
            self._hand_back(live, "engine_failed", now_ms)
        return None

    def _begin_held(self, now_ms: int, overdue_ms: int = -1) -> None:
        """Give the engine held turns, if it is new enough or they were held by `overdue_ms`."""
        service = self.service
        for turn_id, begun in list(self._held.items()):
            request = begun.live.dispatch.request
            if service is None or request.min_version is None:
                continue
            if service.version < request.min_version and begun.since_ms > overdue_ms:
                continue
            del self._held[turn_id]
            why = self._give(service, begun, now_ms)
            if why is not None:
                headers = begun.live.headers
                record = failed(request, why, now_ms)
                self._write(record, request.partition, headers, _ignore_delivery)

    def _enter(self, dispatch: Dispatch, headers: Headers) -> LiveDispatch:
        request = dispatch.request
        span = self._telemetry.child(
            "generate",
            headers,
            session_id=request.session_id,
            turn_id=request.turn_id,
            operation="text_completion",
            provider=PROVIDER,
        )
        live = LiveDispatch(dispatch, span.headers or headers, span, self._wake)
        self.running[request.turn_id] = live
        return live

    def _cancel(self, cancel: r.CancelGeneration, now_ms: int) -> None:
        live = self.running.get(cancel.turn_id)
        if live is None or live.dispatch.request.dispatch != cancel.dispatch:
            return
        if self.admission.admits_cancel(cancel, live.dispatch.request.partition):
            self._hand_back(live, "cancelled", now_ms)

    def _hand_back(self, live: LiveDispatch, reason: str, now_ms: int) -> bool:
        """Write the last record; return False if the turn had just been sampled to its end."""
        record = live.dispatch.end(live.new_chunks(), reason, now_ms)
        self._put(live, record)
        return isinstance(record, r.TurnInterrupted)

    def _put(self, live: LiveDispatch, record: DispatchOutput) -> None:
        # Called on the producer's thread, so it only reports to the main loop.
        def delivered(error: DeliveryFailed | None, _: int) -> None:
            if error is not None:
                self._undelivered(live, error)

        if not isinstance(record, r.TurnFailed):
            self.tokens += len(record.token_ids) // TOKEN_BYTES
        self._write(record, live.dispatch.request.partition, live.headers, delivered)
        if isinstance(record, r.TurnCompleted):
            live.span.set(
                input_tokens=record.prompt_length,
                output_tokens=record.token_offset + len(record.token_ids) // TOKEN_BYTES,
                finish_reasons=[record.finish_reason],
            )
        elif isinstance(record, r.TurnInterrupted | r.TurnFailed):
            live.span.fail(record.reason)
        else:
            return
        self._end(live)

    def _end(self, live: LiveDispatch) -> None:
        self._forget(live)
        if not live.finished and self.service is not None:
            self.service.engine.abort(live.request_id)

    def _forget(self, live: LiveDispatch) -> None:
        live.ended = True
        live.span.end()
        del self.running[live.dispatch.request.turn_id]
        self._held.pop(live.dispatch.request.turn_id, None)


def _stream(parser: MessageParser, request: r.GenerateTurn) -> MessageStream:
    """Return the parser for the turn's completion. Raises `ValueError`."""
    if request.raw:
        return parser.raw_stream()
    return parser.stream(_tools(request.tools), template_prompt(request))


@lru_cache(maxsize=256)
def _tools(tools: bytes | None) -> list[Mapping[str, object]] | None:
    """Return the parsed tools; a session's turns share them. Raises `ValueError`."""
    if tools is None:
        return None
    read: list[Mapping[str, object]] = read_json(tools)
    return read


def _ignore_delivery(error: DeliveryFailed | None, _: int) -> None:
    """Do nothing: if this record is lost, the manager acts at the turn's deadline."""
