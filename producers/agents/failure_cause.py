"""Cause of an agent's exception: the infrastructure, or the agent and its environment. Pure.

Compares names and status codes only, so that no HTTP library has to be installed.
"""

from collections.abc import Iterator

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_CLIENT_LIBRARIES = ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "anthropic")
_GOOGLE = "google.genai.errors"
_TRANSPORT_ERRORS = ("APIConnectionError", "TransportError", "ConnectError")


def is_infrastructure_failure(error: BaseException) -> bool:
    """Return True if the agent failed because a call got a server's error or no response."""
    return any(_is_transport_error(link) or _is_server_error(link) for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those that led to it."""
    seen: set[int] = set()  # a chain of exceptions may be a ring
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _is_transport_error(error: BaseException) -> bool:
    return any(
        base.__name__ in _TRANSPORT_ERRORS and base.__module__.split(".")[0] in _CLIENT_LIBRARIES
        for base in type(error).__mro__
    )


def _is_server_error(error: BaseException) -> bool:
    # Google's client has the status in `code`, which other errors use for other things.
    google = any(base.__module__ == _GOOGLE for base in type(error).__mro__)
    status = getattr(error, "code" if google else "status_code", None)
    return isinstance(status, int) and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS)
