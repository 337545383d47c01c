"""Answers a call of an agent: commands out, replies back, in the agent's dialect.

A call with n choices is n turns. Nothing is sent before the first reply. When a client leaves,
its turn goes on for a grace time in which a retry can join it, and then is cancelled.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from infra import clock
from infra.errors import SeamlessFlowError
from infra.telemetry.metrics import Metrics
from infra.telemetry.tracing import Span, Telemetry
from producers.gateway.calls.blame import blame
from producers.gateway.calls.callers import Caller
from producers.gateway.calls.silence import Silence
from producers.gateway.calls.streamed import StreamedAnswer, answered_turn, finished
from producers.gateway.calls.tries import idempotency_key, retry_count
from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import Dialect, Events
from producers.gateway.errors import ApiError, ClientGone
from producers.gateway.exchange import Exchange
from producers.gateway.link.inbox import Expected, Inbox
from producers.gateway.link.link import Link
from producers.gateway.settings import GatewaySection
from schemas.records import CancelTurn, ReplyDelta, ReplyFinished, RequestTurn

# The manager fails a turn at its deadline; only if it does not, the gateway does, this much later.
_MANAGER_MARGIN_S = 2.0
# A call answered sooner need not be watched, which saves a tenth of its CPU.
_WATCH_AFTER_S = 0.1
# What a reply is that says no more than that the turn is still held.
_QUIET = ReplyDelta(gateway="", session_id="", turn_id="", token_offset=0, token_count=0)
_CLOSED = "session_closed"


@dataclass(slots=True)
class Call:
    """One call under way."""

    request: CanonicalRequest
    caller: Caller
    turn_id: str
    created: int
    span: Span
    inbox: Inbox = field(default_factory=Inbox)
    turns: list[Expected] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    silence: Silence | None = None

    def end(self) -> None:
        """Nothing more is to happen by itself."""
        if self.timer is not None:
            self.timer.cancel()
        if self.silence is not None:
            self.silence.end()


class Turns:
    """Serves turns of all sessions."""

    def __init__(
        self, link: Link, settings: GatewaySection, metrics: Metrics, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._settings = settings
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._patience_s = settings.turn_timeout_s + _MANAGER_MARGIN_S
        self._first_reply = metrics.histogram("seamlessflow_gateway_first_reply_seconds")
        self._cancelled = metrics.counter("seamlessflow_gateway_turns_cancelled_total")
        self._repeated = metrics.counter(
            "seamlessflow_gateway_replies_ignored_total", reason="not_next"
        )

    async def serve(self, exchange: Exchange, caller: Caller, dialect: Dialect) -> None:
        """Answers one call. Raises `ApiError` before anything is sent, or `ClientGone`."""
        settings = self._settings
        body = await exchange.body(settings.max_body_bytes, settings.body_timeout_s)
        request = dialect.parse(body, settings.max_choices)
        call = self._call(request, caller, exchange.headers)
        exchange.request_id = exchange.request_id or call.turn_id.encode()
        call.timer = self._loop.call_later(_WATCH_AFTER_S, self._watch, call, exchange)
        try:
            self._send(call, exchange.headers)
            if request.stream:
                await self._stream(exchange, call, dialect)
            else:
                await self._answer(exchange, call, dialect)
        except SeamlessFlowError as error:
            if isinstance(error, ApiError):
                blame(error, request)
            call.span.fail(str(error))
            if caller.terms is not None and isinstance(error, ApiError) and error.code == _CLOSED:
                # The session ended under the turn; with the next try another one begins.
                raise ApiError(503, error.message, code=error.code) from error
            raise
        finally:
            call.end()
            call.span.end()
            self._leave(call)

    def _call(
        self, request: CanonicalRequest, caller: Caller, headers: Mapping[bytes, bytes]
    ) -> Call:
        turn_id = f"{self._link.instance}{next(self._numbers):x}"
        span = self._telemetry.span(
            "chat",
            _context(headers),
            session_id=caller.session_id,
            turn_id=turn_id,
            model=request.model,
        )
        return Call(request, caller, turn_id, int(time.time()), span)

    def _watch(self, call: Call, exchange: Exchange) -> None:
        """From now on a call ends when its client leaves or its time is over."""
        left_s = self._patience_s - _WATCH_AFTER_S
        call.timer = self._loop.call_later(left_s, call.inbox.put, _late())
        if call.request.stream:
            # It hears something long before it would give up.
            quiet = partial(call.inbox.put, (0, _QUIET))
            call.silence = Silence(self._loop, self._settings.stream_keep_alive_s, quiet)
        # Ends by itself with the exchange, however that ends.
        watch = self._loop.create_task(exchange.gone())
        watch.add_done_callback(partial(_client_gone, call.inbox))

    def _send(self, call: Call, headers: Mapping[bytes, bytes]) -> None:
        for choice, body_hash in enumerate(call.request.body_hashes()):
            turn_id = f"{call.turn_id}.{choice}" if choice else call.turn_id
            expected = Expected(call.inbox, call.caller.session_id, turn_id, choice, True)
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
        request, now_ms = call.request, clock.now_ms()
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
            module=_text(headers.get(b"x-seamlessflow-module", b"")),
            agent=_text(headers.get(b"x-seamlessflow-agent", b"")),
            deadline_ms=deadline_ms,
            terms=call.caller.terms,
            previous_turn=request.previous_turn,
            own_messages=request.own_messages,
            raw=request.raw,
        )

    async def _answer(self, exchange: Exchange, call: Call, dialect: Dialect) -> None:
        answers: dict[int, ReplyFinished] = {}
        while len(answers) < call.request.choices:
            choice, reply = await call.inbox.next()
            if not isinstance(reply, ReplyDelta):
                answers.setdefault(choice, finished(reply))
        ordered = [answers[choice] for choice in range(call.request.choices)]
        turn_id = answered_turn(0, ordered[0])
        body = dialect.completion(turn_id, call.created, call.request, ordered)
        await exchange.answer(200, body)

    async def _stream(self, exchange: Exchange, call: Call, dialect: Dialect) -> None:
        def begin(turn_id: str) -> Events:
            return dialect.events(turn_id, call.created, call.request)

        answer = StreamedAnswer(call.request, begin)
        try:
            # Reached only by a client that does not read: waiting for replies ends before.
            async with asyncio.timeout(self._patience_s + _MANAGER_MARGIN_S):
                await self._send_events(exchange, call, answer)
        except ApiError as error:
            if not exchange.status:
                raise
            blame(error, call.request)
            await exchange.event(answer.failed(error, call.turn_id), last=True)

    async def _send_events(self, exchange: Exchange, call: Call, answer: StreamedAnswer) -> None:
        began = self._loop.time()
        while not answer.complete:
            # What came together goes out in one write, also before a failure.
            parts: list[bytes] = []
            try:
                for choice, reply in await call.inbox.some():
                    parts.append(answer.take(choice, reply))
            finally:
                if data := b"".join(parts):
                    if not exchange.status:
                        self._first_reply.observe(self._loop.time() - began)
                    await exchange.event(data, last=answer.complete)
                    if call.silence is not None:
                        call.silence.heard()
        self._repeated.inc(answer.repeated)

    def _leave(self, call: Call) -> None:
        """Ends the waiting; turns without an answer are cancelled when the grace time is over."""
        for expected in call.turns:
            if expected.answered:
                self._link.forget(expected)
            else:
                self._loop.call_later(self._settings.disconnect_grace_s, self._cancel, expected)

    def _cancel(self, expected: Expected) -> None:
        if not self._link.forget(expected) or expected.answered:
            return
        now_ms = clock.now_ms()
        command = CancelTurn(
            command_id=secrets.token_hex(12),
            session_id=expected.session_id,
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + int(self._settings.turn_timeout_s * 1000),
            reply=self._link.address,
            turn_id=expected.waits_for,
            reason="client_gone",
        )
        self._link.send(command, None)
        self._cancelled.inc()


def _late() -> ApiError:
    return ApiError(504, "the turn was not answered in time", code="timeout")


def _client_gone(inbox: Inbox, _: object) -> None:
    inbox.put(ClientGone())


def _context(headers: Mapping[bytes, bytes]) -> list[tuple[str, bytes]]:
    return [
        (name.decode(), headers[name])
        for name in (b"traceparent", b"tracestate")
        if name in headers
    ]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
