"""Cause of an agent's exception: infrastructure, a refused call, or agent and environment. Pure.

It compares names and status codes, so that no HTTP library has to be installed. It needs only the
standard library: `environments/inside/host.py` reads it in other packages' Python.
"""

from collections.abc import Iterator

_REFUSED = 400
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_CLIENT_LIBRARIES = ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "anthropic")
_GOOGLE = "google.genai.errors"
_TRANSPORT_ERRORS = ("APIConnectionError", "TransportError", "ConnectError")


def is_infrastructure_failure(error: BaseException) -> bool:
    """Return True if the agent failed because a call got a server's error or no response."""
    return any(_is_transport_error(link) or _is_server_error(link) for link in _causes(error))


def is_refused_call(error: BaseException) -> bool:
    """Return True if a call was refused, for example a prompt too long or a turn too many."""
    return any(
        isinstance(status, int) and _REFUSED <= status < _SERVER_ERROR
        for link in _causes(error)
        for status in _statuses(link)
        if status != _TOO_MANY_REQUESTS
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, those that led to it, and the members of groups among them."""
    seen: set[int] = set()  # a chain of exceptions may be a ring
    left: list[BaseException | None] = [error]
    while left:
        link = left.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        left.append(link.__cause__ or link.__context__)
        if isinstance(link, BaseExceptionGroup):
            left.extend(link.exceptions)


def _is_transport_error(error: BaseException) -> bool:
    return any(
        base.__name__ in _TRANSPORT_ERRORS and base.__module__.split(".")[0] in _CLIENT_LIBRARIES
        for base in type(error).__mro__
    )


def _is_server_error(error: BaseException) -> bool:
    return any(
        isinstance(status, int) and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS)
        for status in _statuses(error)
    )


def _statuses(error: BaseException) -> Iterator[object]:
    # Google's client has the status in `code`, which other errors use for other things.
    google = any(base.__module__ == _GOOGLE for base in type(error).__mro__)
    yield getattr(error, "code" if google else "status_code", None)
    yield getattr(getattr(error, "response", None), "status_code", None)  # httpx has it there
