"""The application: addresses, answer forms, errors as pages. It answers only GET and HEAD."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from seamlessflow.console.log.moment import BadMoment, MomentNotOnLog
from seamlessflow.console.views.query import QueryRejected, RunNotBeside
from seamlessflow.console.views.session.token_range import RangeRefused
from seamlessflow.console.web.compare_pages import NothingToMerge
from seamlessflow.console.web.console import NAV, RECORD, SESSION, STEP, TOKENS, AskedPage, Console
from seamlessflow.console.web.guard import Guard
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.console.web.session_pages import SessionNotOnLog
from seamlessflow.console.web.step_pages import StepNotOnLog
from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError
from seamlessflow.lab.timeline.page import FILES as TIMELINE_FILES

STATIC = Path(str(files(__package__) / "static"))
_JSON = ".json"
JSON_TYPE = "application/json"
_OF_PAST = ("at", "control", "time")


def application(
    console: Console, broadcaster: Broadcaster, host: str, token: str | None = None
) -> ASGIApp:
    """Return the ASGI application for a server that listens on `host`."""
    pages = [name for name, _ in NAV]
    answer = partial(_answer, console)
    live = partial(_live, console, broadcaster)
    routes = [
        Route("/", _home, methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        *(
            Route(f"/{name}{form}", answer, methods=["GET"])
            for name in pages
            for form in ("", _JSON)
        ),
        *(
            Route(f"/{name}/{{place:path}}", answer, methods=["GET"])
            for name in (RECORD, SESSION, STEP, TOKENS)
        ),
        *(Route(f"/live/{name}", live, methods=["GET"]) for name in pages),
        Mount("/static/timeline", StaticFiles(directory=str(TIMELINE_FILES))),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]

    @asynccontextmanager
    async def rendering(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(broadcaster.run())
        try:
            yield
        finally:
            task.cancel()

    return Guard(Starlette(routes=routes, lifespan=rendering), host, token)


async def _home(_: Request) -> Response:
    return RedirectResponse("/now", 307)


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _answer(console: Console, request: Request) -> Response:
    asked, as_json = asked_for(request)
    try:
        if as_json:
            return Response(await run_in_threadpool(console.json, asked), 200, None, JSON_TYPE)
        return HTMLResponse(await run_in_threadpool(console.html, asked))
    except SeamlessFlowError as error:
        status = status_of(error)
        reason = str(error)
    if as_json:
        return JSONResponse({"error": reason}, status)
    return HTMLResponse(console.error(status, reason), status)


def status_of(error: SeamlessFlowError) -> int:
    """Return the HTTP status for an answer that reports this error."""
    match error:
        case BadMoment() | QueryRejected() | RangeRefused():
            return 400
        case MomentNotOnLog() | SessionNotOnLog() | StepNotOnLog():
            return 404
        case NothingToMerge() | RunNotBeside():
            return 404
        case KafkaUnavailable():
            return 503
    return 500


def asked_for(request: Request) -> tuple[AskedPage, bool]:
    """Return the page that a request asks for, and whether it asks for JSON."""
    path = str(request.scope["path"]).strip("/")
    as_json = path.endswith(_JSON) or prefers_json(request.headers.get("accept", ""))
    name, _, place = path.removesuffix(_JSON).partition("/")
    return AskedPage(name, dict(request.query_params), place), as_json or name == TOKENS


def prefers_json(accept: str) -> bool:
    """Return whether an Accept header names JSON before HTML."""
    types = [part.partition(";")[0].strip() for part in accept.split(",")]
    return JSON_TYPE in types and "text/html" not in types[: types.index(JSON_TYPE)]


async def _live(console: Console, broadcaster: Broadcaster, request: Request) -> Response:
    name = request.url.path.strip("/").partition("/")[2]
    query = {part: text for part, text in request.query_params.items() if part not in _OF_PAST}
    asked = AskedPage(name, query)
    channel = f"{name}?{sorted(query.items())}"
    if not broadcaster.has_room(channel):
        return PlainTextResponse("too many different live pages are open\n", 503)
    events = broadcaster.events(channel, partial(console.fragment, asked))
    return StreamingResponse(events, media_type="text/event-stream")
