"""Access to the pages: host names, the token, and headers that hold a page to its host.

A foreign page may point its host name to this machine (DNS rebinding). The browser then sends that
name, so only this server's names are accepted. A numeric address cannot be pointed elsewhere.
"""

import hashlib
import hmac
import socket
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "seamlessflow_console"
TOKEN = "token"  # nosec B105 # the name of a parameter
_LOCAL = ("localhost", "localhost.localdomain")
_METHODS = ("GET", "HEAD")
HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on this host is reached only from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in _LOCAL


def own_names(host: str) -> frozenset[str]:
    """Return the names, besides addresses, by which a server on this host may be asked for."""
    if is_loopback(host):
        return frozenset(_LOCAL)
    return frozenset({*_LOCAL, host, socket.gethostname(), socket.getfqdn()})


def host_allowed(header: str, names: frozenset[str], loopback: bool) -> bool:
    """Return whether a request's Host is this server's: one of its names, or an address.

    With `loopback`, an address must be a loopback address.
    """
    name = header.rpartition(":")[0] if _has_port(header) else header
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return name.lower() in names
    return address.is_loopback or not loopback


def _has_port(header: str) -> bool:
    return header.rpartition(":")[2].isdigit() and not header.endswith("]")


class Guard:
    """Middleware that lets only permitted requests through."""

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        """Guard an application that listens on `host`. Without a `token`, every client may ask."""
        self._app = app
        self._names = own_names(host)
        self._loopback = is_loopback(host)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        answer = self._app if refusal is None else refusal
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not host_allowed(headers.get("host", ""), self._names, self._loopback):
            return PlainTextResponse("this host is not served here\n", 421)
        if scope["method"] not in _METHODS:
            allow = {"allow": ", ".join(_METHODS)}
            return PlainTextResponse("the console only reads\n", 405, allow)
        return None if self._token is None else self._without_token(scope, headers)

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        token = self._token or ""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        for name, value in query:
            if name == TOKEN and _equal(value, token):
                return _welcome(scope, query, token)
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = _cookie(headers.get("cookie", ""))
        if _equal(bearer, token) or _equal(cookie, cookie_of(token)):
            return None
        text = "a token is needed: open the address that the console printed at its start\n"
        return PlainTextResponse(text, 401)


def cookie_of(token: str) -> str:
    """Return the cookie value that a browser keeps instead of the token."""
    return hashlib.sha256(f"cookie {token}".encode()).hexdigest()


def _welcome(scope: Scope, query: list[tuple[str, str]], token: str) -> Response:
    """Return a redirect to the same page, without the token in its address."""
    left = urlencode([(name, value) for name, value in query if name != TOKEN])
    path = "/" + scope["path"].lstrip("/")
    answer = RedirectResponse(f"{path}?{left}" if left else path, 303)
    answer.set_cookie(COOKIE, cookie_of(token), httponly=True, samesite="strict")
    return answer


def _cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(errors="replace"), second.encode())


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent
