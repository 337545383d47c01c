"""The ASGI application: routes, access control, and error answers.

A new route is a line in `ROUTES` (`routes.py`) and one in `_handlers`. `App` answers all routes'
errors in the client's dialect, and counts every answer. The paths below `/v1`, `/v1beta` and
`/inference` also exist below `/sessions/{id}`: there a call belongs to that session.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

from seamlessflow.infra.telemetry.metrics import CONTENT_TYPE, Metrics
from seamlessflow.infra.telemetry.tracing import Telemetry
from seamlessflow.producers.gateway.calls.callers import Callers
from seamlessflow.producers.gateway.calls.counting import CountForm, Counting
from seamlessflow.producers.gateway.calls.in_flight import CallsInFlight
from seamlessflow.producers.gateway.calls.keys import Keys
from seamlessflow.producers.gateway.calls.models import Models
from seamlessflow.producers.gateway.calls.sessions import Sessions
from seamlessflow.producers.gateway.calls.trajectories import Trajectories
from seamlessflow.producers.gateway.calls.turns import Turns
from seamlessflow.producers.gateway.dialects.anthropic_messages.request import (
    prompt as messages_prompt,
)
from seamlessflow.producers.gateway.dialects.dialect import Dialect
from seamlessflow.producers.gateway.dialects.google_content.request import prompt as content_prompt
from seamlessflow.producers.gateway.errors import ApiError, ClientGone
from seamlessflow.producers.gateway.exchange import Exchange, Receive, Scope, Send
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.routes import (
    DIALECTS,
    GOOGLE,
    GOOGLE_MODELS,
    ROUTES,
    dialect_of,
    dialect_of_call,
    meant_paths,
    model_in,
    route_of,
)
from seamlessflow.producers.gateway.settings import GatewaySection

Handler = Callable[[Exchange, str | None], Awaitable[None]]
_CLIENT_GONE = 499
_SESSION_PREFIX = "/sessions/"
_GOOGLE_PREFIX = "/v1beta/"
_METHODS = {"GET": ("GET", "HEAD"), "POST": ("POST",)}
"""Methods that a route accepts. A HEAD is a GET whose body uvicorn leaves out."""
_BASE_URLS = (
    "OpenAI's clients need /v1 at the end of their base URL, Anthropic's and Google's own add "
    "their version; other clients of Google's API, such as litellm, need /v1beta there"
)
_log = logging.getLogger(__name__)


class App:
    """One gateway's HTTP interface."""

    def __init__(
        self, link: Link, settings: GatewaySection, url: str, metrics: Metrics, tracing: Telemetry
    ) -> None:
        admin_key = settings.admin_key.get_secret_value() if settings.admin_key else None
        self._keys = Keys(settings.secret.get_secret_value(), admin_key, settings.api_keys)
        self._callers = Callers(self._keys, settings)
        self._models = Models(settings.models)
        self._metrics = metrics
        self._turns = Turns(link, settings, metrics, tracing)
        self._counting = Counting(link, settings, tracing)
        self._sessions = Sessions(link, settings, self._keys, url, tracing)
        self._trajectories = Trajectories(link, settings, tracing)
        self.in_flight = CallsInFlight(link, settings.max_in_flight, settings.max_in_flight_bytes)
        self._counts: dict[tuple[str, int], Callable[[float], None]] = {}
        metrics.gauge("seamlessflow_gateway_in_flight").set_function(lambda: self.in_flight.count)
        handlers = self._handlers()
        self._routes: Mapping[str, tuple[str, str, Handler]] = {
            path: (route.method, route.name, handlers[path]) for path, route in ROUTES.items()
        }

    def _handlers(self) -> Mapping[str, Handler]:
        """Return the handler for each path in `ROUTES`."""
        count_messages = self._count_handler(CountForm(messages_prompt, "input_tokens"))
        count_content = self._count_handler(CountForm(content_prompt, "totalTokens"))
        return {
            **{path: self._turn_handler(dialect) for path, dialect in DIALECTS.items()},
            "/v1/messages/count_tokens": count_messages,
            f"{GOOGLE_MODELS}*:countTokens": count_content,
            **{f"/{version}/models": self._list_models for version in ("v1", "v1beta")},
            **{f"/{version}/models/*": self._show_model for version in ("v1", "v1beta")},
            "/sessions": self._open,
            "/sessions/*": self._describe,
            "/sessions/*/chains": self._chains,
            "/sessions/*/reward": self._admin_handler(self._sessions.reward),
            "/sessions/*/close": self._admin_handler(self._sessions.close),
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._show_metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. uvicorn calls this."""
        exchange = Exchange(scope, receive, send)
        began = time.perf_counter()
        path, session = _split(exchange.path, exchange.method)
        method, route, handler = self._routes.get(path, ("", "none", self._not_found))
        exchange.route = path
        exchange.last = self.in_flight.leaving
        if path.startswith(_GOOGLE_PREFIX):
            exchange.take_key_from_url()
        error_body = dialect_of(path, exchange.headers).error_body
        try:
            if method and exchange.method not in (accepted := _METHODS[method]):
                detail = f"{path} takes {method}"
                allow = ", ".join(accepted)
                raise ApiError(405, detail, code="method_not_allowed", allow=allow)
            await handler(exchange, session)
        except ApiError as error:
            await _answer_error(exchange, error, error_body)
        except ClientGone:
            exchange.status = _CLIENT_GONE
        except Exception:
            _log.exception("%s %s failed", exchange.method, exchange.path)
            if exchange.status:
                # The answer has begun: only uvicorn can still end it, by closing the connection.
                raise
            await _answer_error(exchange, ApiError(500, "internal error"), error_body)
        finally:
            self._count(route, exchange.status, time.perf_counter() - began)

    # A call counts only after its key was checked: a wrong key gets 401 even from a full gateway.
    def _turn_handler(self, dialect: Dialect) -> Handler:
        async def serve(exchange: Exchange, session: str | None) -> None:
            caller = self._callers.caller(exchange.headers, session)
            with self.in_flight.call(exchange):
                spoken = dialect_of_call(dialect, exchange.path, exchange.parameter)
                await self._turns.serve(exchange, caller, spoken)

        return serve

    def _admin_handler(self, serve: Callable[[Exchange, str], Awaitable[None]]) -> Handler:
        async def serve_admin(exchange: Exchange, session: str | None) -> None:
            self._keys.require_admin(exchange.headers)
            with self.in_flight.call(exchange):
                await serve(exchange, session or "")

        return serve_admin

    async def _open(self, exchange: Exchange, _: str | None) -> None:
        self._keys.require_admin(exchange.headers)
        # Not while leaving: the agent may call this gateway for as long as its session lasts.
        self.in_flight.refuse_unless_ready()
        with self.in_flight.call(exchange):
            await self._sessions.open(exchange, "")

    async def _describe(self, exchange: Exchange, session: str | None) -> None:
        self._keys.require_owner(exchange.headers, session or "")
        with self.in_flight.call(exchange):
            await self._sessions.describe(exchange, session or "")

    async def _chains(self, exchange: Exchange, session: str | None) -> None:
        self._keys.require_owner(exchange.headers, session or "")
        with self.in_flight.call(exchange):
            await self._trajectories.chains(exchange, session or "")

    def _count_handler(self, form: CountForm) -> Handler:
        async def count(exchange: Exchange, session: str | None) -> None:
            caller = self._callers.caller(exchange.headers, session)
            with self.in_flight.call(exchange):
                await self._counting.serve(exchange, caller, form)

        return count

    async def _list_models(self, exchange: Exchange, session: str | None) -> None:
        self._keys.require_any(exchange.headers)
        await exchange.answer(200, self._models.listing(_speaks_google(exchange)))

    async def _show_model(self, exchange: Exchange, session: str | None) -> None:
        self._keys.require_any(exchange.headers)
        name = model_in(exchange.path)
        await exchange.answer(200, self._models.description(name, _speaks_google(exchange)))

    async def _health(self, exchange: Exchange, _: str | None) -> None:
        await exchange.answer(200, b'{"status":"alive"}')

    async def _ready(self, exchange: Exchange, _: str | None) -> None:
        self.in_flight.refuse_unless_ready()
        await exchange.answer(200, b'{"status":"ready"}')

    async def _show_metrics(self, exchange: Exchange, _: str | None) -> None:
        # In a thread, because this asks Kafka for the lag on `replies`.
        text = await asyncio.to_thread(self._metrics.text)
        await exchange.answer(200, text, content_type=CONTENT_TYPE)

    async def _not_found(self, exchange: Exchange, _: str | None) -> None:
        detail = f"there is no {exchange.path}"
        for meant in meant_paths(exchange.path):
            if _split(meant, exchange.method)[0] in self._routes:
                detail = f"{detail}; did you mean {meant}? {_BASE_URLS}"
                break
        raise ApiError(404, detail, code="unknown_path")

    def _count(self, route: str, status: int, seconds: float) -> None:
        observe = self._counts.get((route, status))
        if observe is None:
            observe = self._counts[route, status] = self._counter(route, status)
        observe(seconds)

    def _counter(self, route: str, status: int) -> Callable[[float], None]:
        calls = self._metrics.counter(
            "seamlessflow_gateway_requests_total", route=route, status=str(status)
        )
        duration = self._metrics.histogram("seamlessflow_gateway_request_seconds", route=route)

        def observe(seconds: float) -> None:
            calls.inc()
            duration.observe(seconds)

        return observe


def _split(path: str, http_method: str) -> tuple[str, str | None]:
    """Return the route that serves a path, and the session that the path names, or None."""
    if not path.startswith(_SESSION_PREFIX) or path == _SESSION_PREFIX:
        return route_of(path, http_method), None
    session, _, rest = path.removeprefix(_SESSION_PREFIX).partition("/")
    spoken = rest.startswith(("v1/", "v1beta/", "inference/"))
    if spoken:
        return route_of(f"/{rest}", http_method), session
    return f"/sessions/*/{rest}".removesuffix("/"), session


def _speaks_google(exchange: Exchange) -> bool:
    return dialect_of(exchange.route, exchange.headers) is GOOGLE


async def _answer_error(
    exchange: Exchange, error: ApiError, error_body: Callable[[ApiError], bytes]
) -> None:
    # A call that failed before its turn began has no request id yet.
    exchange.request_id = exchange.request_id or b"req_" + secrets.token_hex(12).encode()
    error.request_id = exchange.request_id.decode()
    await exchange.answer(error.status, error_body(error), error.headers)
