"""Agents' calls: commands to the manager, and its replies as an answer in the agent's dialect.

A call with n choices is n turns. The client gets nothing before the first reply. After a client
leaves, its turn continues for a grace time in which a retry can join it. Then `CancelTurn` ends the
turn. If the turn completes within the grace time, the same command reports at once that the answer
was not delivered. So no turn counts as delivered that is not. A retry may still get that answer.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from seamlessflow.infra import clock
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import Span, Telemetry
from seamlessflow.producers.gateway.calls.callers import (
    AGENT_HEADER,
    MODULE_HEADER,
    Caller,
    idempotency_key,
    retry_count,
    text_in,
    wishes_in,
)
from seamlessflow.producers.gateway.calls.refusals import blame, with_bound_schema
from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer, answered_turn, finished
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import Dialect, Events
from seamlessflow.producers.gateway.errors import ApiError, ClientGone
from seamlessflow.producers.gateway.exchange import Exchange
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.replies import ExpectedReply, ReplyInbox
from seamlessflow.producers.gateway.server_span import (
    describe_answer,
    describe_request,
    served,
)
from seamlessflow.producers.gateway.settings import GatewaySection
from seamlessflow.schemas.records import CancelTurn, ReplyDelta, ReplyFinished, RequestTurn

_log = logging.getLogger(__name__)
# The manager ends a turn at its deadline. If it does not, the gateway does so this much later.
_MANAGER_MARGIN_S = 2.0
# A call answered sooner is not watched, which saves a tenth of its CPU.
_WATCH_AFTER_S = 0.1
# A reply without tokens: the turn is still alive, the client gets a keep-alive.
_STILL_ALIVE = ReplyDelta(gateway="", session_id="", turn_id="", token_offset=0, token_count=0)
_CLOSED = "session_closed"


class _TimerLoop(Protocol):
    """The event-loop methods that a timer needs."""

    def time(self) -> float:
        """Return the loop's time, in seconds."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back once, after `delay` seconds."""
        ...


class KeepAliveTimer:
    """A timer that calls `expired` after each `seconds` without a `restart`, until `cancel`."""

    def __init__(self, loop: _TimerLoop, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._expired = expired
        self._since = loop.time()
        self._timer = loop.call_later(seconds, self._check)

    def restart(self) -> None:
        """Begin to wait for `seconds` again."""
        # Called for each event, so it only notes the time; `_check` reads it when the timer is due.
        self._since = self._loop.time()

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _check(self) -> None:
        left_s = self._since + self._seconds - self._loop.time()
        if left_s <= 0:
            self.restart()
            self._expired()
            left_s = self._seconds
        self._timer = self._loop.call_later(left_s, self._check)


@dataclass(slots=True)
class Call:
    """One call under way, with everything that must end with it."""

    request: CanonicalRequest
    caller: Caller
    turn_id: str
    created: int
    span: Span
    inbox: ReplyInbox = field(default_factory=ReplyInbox)
    turns: list[ExpectedReply] = field(default_factory=list)
    limit: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    timer: asyncio.TimerHandle | None = None
    keep_alive: KeepAliveTimer | None = None

    def stop_timers(self) -> None:
        """Cancel all the call's timers."""
        if self.timer is not None:
            self.timer.cancel()
        if self.keep_alive is not None:
            self.keep_alive.cancel()


class Turns:
    """The handler for calls that sample turns, in all sessions."""

    def __init__(
        self, link: Link, settings: GatewaySection, metrics: Metrics, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._settings = settings
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._longest_wait_s = settings.turn_timeout_s + _MANAGER_MARGIN_S
        self._first_reply = metrics.histogram("seamlessflow_gateway_first_reply_seconds")
        self._cancelled = metrics.counter("seamlessflow_gateway_turns_cancelled_total")
        self._undelivered = metrics.counter("seamlessflow_gateway_turns_undelivered_total")
        self._repeated = metrics.counter(
            "seamlessflow_gateway_replies_ignored_total", reason="not_next"
        )

    async def serve(self, exchange: Exchange, caller: Caller, dialect: Dialect) -> None:
        """Answer one call. Raises `ApiError` before anything was sent, or `ClientGone`."""
        with served(self._telemetry, exchange, caller.session_id) as span:
            await self._serve(exchange, caller, dialect, span)

    async def _serve(
        self, exchange: Exchange, caller: Caller, dialect: Dialect, span: Span
    ) -> None:
        settings = self._settings
        body = await exchange.body(settings.max_body_bytes, settings.body_timeout_s)
        request = with_bound_schema(dialect.parse(body, settings.max_choices))
        call = self._call(request, caller, span)
        exchange.request_id = exchange.request_id or call.turn_id.encode()
        call.timer = self._loop.call_later(_WATCH_AFTER_S, self._watch, call, exchange)
        delivered = False
        try:
            async with call.limit:
                self._send_commands(call, exchange.headers)
                if request.stream:
                    await self._stream(exchange, call, dialect)
                else:
                    await self._answer(exchange, call, dialect)
                delivered = await exchange.taken()
        except SeamlessFlowError as error:
            if isinstance(error, ApiError):
                blame(error, request)
            if caller.terms is not None and isinstance(error, ApiError) and error.code == _CLOSED:
                # The session ended during the turn. After 503 the client retries: a new one begins.
                raise ApiError(503, error.message, code=error.code) from error
            raise
        finally:
            call.stop_timers()
            self._stop_waiting(call, delivered)

    def _call(self, request: CanonicalRequest, caller: Caller, span: Span) -> Call:
        # The instance's random id makes turn ids unique among all gateways.
        turn_id = f"{self._link.instance}{next(self._numbers):x}"
        describe_request(span, turn_id, request)
        return Call(request, caller, turn_id, int(time.time()), span)

    def _watch(self, call: Call, exchange: Exchange) -> None:
        """Watch the call: end it when its client leaves or its time is over."""
        left_s = self._longest_wait_s - _WATCH_AFTER_S
        call.timer = self._loop.call_later(left_s, call.inbox.put, _timed_out())
        # Only a client that does not read reaches this limit: waiting for replies ends earlier.
        call.limit.reschedule(self._loop.time() + left_s + _MANAGER_MARGIN_S)
        if call.request.stream:
            send_keep_alive = partial(call.inbox.put, (0, _STILL_ALIVE))
            call.keep_alive = KeepAliveTimer(
                self._loop, self._settings.stream_keep_alive_s, send_keep_alive
            )
        # Needs no cancel: the task ends when the client leaves or has its whole answer.
        watch = self._loop.create_task(exchange.gone())
        watch.add_done_callback(partial(_client_gone, call.inbox))

    def _send_commands(self, call: Call, headers: Mapping[bytes, bytes]) -> None:
        for choice, body_hash in enumerate(call.request.body_hashes()):
            turn_id = f"{call.turn_id}.{choice}" if choice else call.turn_id
            expected = ExpectedReply(call.inbox, call.caller.session_id, turn_id, choice, True)
            command = self._command(call, turn_id, choice, body_hash, headers)
            self._link.send(command, expected, call.span.headers)
            call.turns.append(expected)

    def _command(
        self,
        call: Call,
        turn_id: str,
        choice: int,
        body_hash: bytes,
        headers: Mapping[bytes, bytes],
    ) -> RequestTurn:
        request = call.request
        now_ms = clock.now_ms()
        deadline_ms = now_ms + int(self._settings.turn_timeout_s * 1000)
        return RequestTurn(
            command_id=turn_id,
            session_id=call.caller.session_id,
            issued_at_ms=now_ms,
            expires_at_ms=deadline_ms,
            reply=self._link.address,
            turn_id=turn_id,
            idempotency_key=idempotency_key(headers, body_hash),
            retry_count=retry_count(headers),
            body_hash=body_hash,
            dialect=request.dialect,
            messages=request.messages,
            tools=request.tools,
            template_args=request.template_args,
            sampling=request.sampling,
            tool_choice=request.tool_choice,
            choice=choice,
            stream=request.stream,
            wants_logprobs=request.wants_logprobs,
            wants_token_ids=request.wants_token_ids,
            module=text_in(headers, MODULE_HEADER),
            agent=text_in(headers, AGENT_HEADER),
            deadline_ms=deadline_ms,
            terms=call.caller.terms,
            previous_turn=request.previous_turn,
            own_messages=request.own_messages,
            raw=request.raw,
            tags=wishes_in(headers),
        )

    async def _answer(self, exchange: Exchange, call: Call, dialect: Dialect) -> None:
        answers: dict[int, ReplyFinished] = {}
        while len(answers) < call.request.choices:
            choice, reply = await call.inbox.next_reply()
            if not isinstance(reply, ReplyDelta):
                answers.setdefault(choice, finished(reply))
        ordered = [answers[choice] for choice in range(call.request.choices)]
        turn_id = answered_turn(0, ordered[0])
        describe_answer(call.span, call.request, ordered)
        body = dialect.completion(turn_id, call.created, call.request, ordered)
        await exchange.answer(200, body)

    async def _stream(self, exchange: Exchange, call: Call, dialect: Dialect) -> None:
        def begin(turn_id: str) -> Events:
            return dialect.events(turn_id, call.created, call.request)

        exchange.stream_type = dialect.stream_type
        answer = StreamedAnswer(call.request, begin, dialect.waiting)
        try:
            await self._send_events(exchange, call, answer)
        except ApiError as error:
            if not exchange.status:
                raise
            blame(error, call.request)
            await exchange.event(answer.failed(error, call.turn_id), last=True)

    async def _send_events(self, exchange: Exchange, call: Call, answer: StreamedAnswer) -> None:
        began = self._loop.time()
        while not answer.complete:
            # Replies that arrived together go out in one write, even if the last one is a failure.
            parts: list[bytes] = []
            try:
                for choice, reply in await call.inbox.ready_replies():
                    parts.append(answer.write_reply(choice, reply))
            finally:
                if data := b"".join(parts):
                    if not exchange.status:
                        self._first_reply.observe(self._loop.time() - began)
                    await exchange.event(data, last=answer.complete)
                    if call.keep_alive is not None:
                        call.keep_alive.restart()
        self._repeated.inc(answer.repeated)
        describe_answer(call.span, call.request, answer.answers)

    def _stop_waiting(self, call: Call, delivered: bool) -> None:
        """Stop waiting for replies; give up turns that the client did not get.

        A turn without an answer is given up after the grace time, or as soon as its answer comes.
        Its session may be closed before the grace time is over.
        """
        for expected in call.turns:
            if delivered:
                self._link.delivered(expected)
            elif expected.answered:
                self._loop.call_soon(self._give_up, expected)
            else:
                grace_s = self._settings.disconnect_grace_s
                timer = self._loop.call_later(grace_s, self._give_up, expected)
                expected.on_answer = partial(self._give_up_early, expected, timer)

    def _give_up_early(self, expected: ExpectedReply, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        # Not now: the link is handing the reply to all calls that wait for the turn.
        self._loop.call_soon(self._give_up, expected)

    def _give_up(self, expected: ExpectedReply) -> None:
        """Cancel a turn, or report that its answer was not delivered."""
        # A retry may wait for the turn or have got it; a failed turn has no answer to deliver.
        alone = self._link.forget(expected)
        failed = expected.answered and not expected.completed
        if not alone or failed or expected.delivered:
            return
        command = CancelTurn(
            **self._link.command_fields(expected.session_id, self._settings.turn_timeout_s),
            turn_id=expected.waits_for,
            reason="client_gone",
        )
        try:
            self._link.send(command, None)
        except ApiError as error:
            _log.warning(
                "session %s: the client of turn %s left, which could not be reported: %s",
                expected.session_id,
                expected.waits_for,
                error.message,
            )
            return
        (self._undelivered if expected.completed else self._cancelled).inc()


def _timed_out() -> ApiError:
    return ApiError(504, "the turn was not answered in time", code="timeout")


def _client_gone(inbox: ReplyInbox, _: object) -> None:
    inbox.put(ClientGone())
