"""Whose doing an agent's exception is: the system's, or the agent's and its environment's. Pure.

Looks at names and statuses only, so that no HTTP library needs to be there.
"""

from collections.abc import Iterator

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_CLIENT_LIBRARIES = ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "anthropic")
_TRANSPORT_ERRORS = ("APIConnectionError", "TransportError", "ConnectError")


def is_infrastructure(error: BaseException) -> bool:
    """Whether an answer of the model endpoint, or the lack of one, made the agent fail."""
    return any(_is_transport(link) or _is_server_error(link) for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _is_transport(error: BaseException) -> bool:
    return any(
        base.__name__ in _TRANSPORT_ERRORS and base.__module__.split(".")[0] in _CLIENT_LIBRARIES
        for base in type(error).__mro__
    )


def _is_server_error(error: BaseException) -> bool:
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS)
