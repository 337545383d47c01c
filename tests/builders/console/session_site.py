"""A site of session pages on a free port: the console's template, scripts and functions, no Kafka.

It answers as the console does: a page, its twin, ranges of tokens, static files, and a strict
Content-Security-Policy. It keeps the path of each request.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader

from seamlessflow.console.views.session.page import SessionPage, session_page, twin
from seamlessflow.console.views.session.reasons import ExplainedTokens
from seamlessflow.console.views.session.token_range import RangeRefused, token_range
from seamlessflow.console.views.session.trained_runs import NO_RUNS, TrainedRuns
from seamlessflow.recorded.show.session_view import Spell
from tests.paths import ROOT

WEB = ROOT / "console" / "web"
_LAYOUT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>session</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/layout.css"></head>
<body><main>{% include "session.html" %}</main></body></html>
"""
_CSS = (
    ":root{color-scheme:light dark}body{margin:12px 18px;font:14px/1.45 system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){body{background:#14181d}}"
)
_ICON = '<svg xmlns="http://www.w3.org/2000/svg"/>'
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class SessionSite:
    """The sessions that are shown, by id, and the requests that came."""

    def __init__(
        self,
        sessions: Mapping[str, ExplainedTokens],
        spell: Spell | None = None,
        trained: TrainedRuns = NO_RUNS,
    ) -> None:
        self.pages: dict[str, SessionPage] = {
            name: session_page(tokens, trained) for name, tokens in sessions.items()
        }
        self.requests: list[str] = []
        self.address = ""
        self._sessions = sessions
        self._spell = spell
        loader = ChoiceLoader([DictLoader({"page.html": _LAYOUT}), FileSystemLoader(WEB / "pages")])
        self._template = Environment(loader=loader, autoescape=True).get_template("page.html")

    def url(self, session: str, beside: str = "", colour: str = "") -> str:
        """Return the address of a session's page."""
        return f"{self.address}/session/{quote(session, '')}?beside={beside}&colour={colour}"

    def answer(self, target: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body."""
        self.requests.append(target)
        split = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        match split.path.strip("/").split("/"):
            case ["static", *rest]:
                return HTTPStatus.OK, _TYPES[rest[-1].rpartition(".")[2]], _static("/".join(rest))
            case ["session", name, "tokens.json"]:
                return self._range(unquote(name), query)
            case ["session", name] if name.endswith(".json"):
                page = self.pages[unquote(name.removesuffix(".json"))]
                return HTTPStatus.OK, "application/json", b'{"page":%b}' % twin(page)
            case ["session", name]:
                html = self._html(unquote(name), query.get("beside", ""))
                return HTTPStatus.OK, "text/html; charset=utf-8", html.encode()
        return HTTPStatus.NOT_FOUND, "text/plain", b"not here"

    def _range(self, name: str, query: Mapping[str, str]) -> tuple[HTTPStatus, str, bytes]:
        try:
            part = token_range(
                self._sessions[name], int(query["from"]), int(query["to"]), self._spell
            )
        except RangeRefused as error:
            return HTTPStatus.BAD_REQUEST, "text/plain", str(error).encode()
        return HTTPStatus.OK, "application/json", b'{"page":%b}' % twin(part)

    def _html(self, name: str, beside: str) -> str:
        return self._template.render(
            page=self.pages[name],
            beside=self.pages.get(beside),
            twin_url=lambda session: f"/session/{quote(session, '')}.json",
            range_url=lambda session: f"/session/{quote(session, '')}/tokens.json",
            record_url=lambda place: f"/record/{quote(place)}",
            rules_url=lambda session: f"/compare?session={quote(session)}",
            records_url=lambda session: f"/records?key={quote(session)}",
            frame=SimpleNamespace(moment=""),
        )


@contextmanager
def serving(site: SessionSite) -> Iterator[SessionSite]:
    """Serve the site on a free port of this machine until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = site.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Security-Policy", "default-src 'self'")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _static(path: str) -> bytes:
    match path:
        case "layout.css":
            return _CSS.encode()
        case "icon.svg":
            return _ICON.encode()
    return (WEB / "static" / path).read_bytes()
