"""A call's errors, with the HTTP status that the client gets.

Any part of the gateway may raise `ApiError`; `app.py` answers it in the client's dialect.
`ClientGone` ends a call whose client has left.
"""

import re

from seamlessflow.infra.errors import SeamlessFlowError

PROMPT_TOO_LONG = "prompt_too_long"
"""Reason that managers and workers report. Agents look for each vendor's own words for it."""

_LOWEST = 400
_HIGHEST = 599
_CANCELLED = 499
_LONGEST_MESSAGE = 2000
_LENGTHS = re.compile(r"the prompt has (\d+) tokens, the context (?:holds )?(\d+)")


class ClientGone(SeamlessFlowError):
    """The loss of a client's connection before it had its answer."""


class ApiError(SeamlessFlowError):
    """A call's refusal. `param` names the wrong parameter, `code` is the error for programs.

    `allow` lists the methods that a path accepts.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        param: str | None = None,
        allow: str = "",
    ) -> None:
        self.status = status if _LOWEST <= status <= _HIGHEST else 500
        self.message = message[:_LONGEST_MESSAGE]
        self.code = code
        self.param = None if param is None else param[:_LONGEST_MESSAGE]
        self.allow = allow
        self.request_id = ""
        """The call's name in logs; `app.py` sets it."""
        super().__init__(f"{self.status} {code}: {self.message}")

    @property
    def prompt_lengths(self) -> tuple[int, int] | None:
        """Return how many tokens a too long prompt and its context have; None for other errors."""
        # Managers and workers report both numbers in the message only.
        lengths = _LENGTHS.search(self.message) if self.code == PROMPT_TOO_LONG else None
        return None if lengths is None else (int(lengths[1]), int(lengths[2]))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers by which a client decides whether and when to retry."""
        if self.status in (429, 503):
            return [(b"retry-after", b"1")]
        if self.status == 409:
            # OpenAI's client would retry a 409, but a closed session never opens again.
            return [(b"x-should-retry", b"false")]
        if self.status in (408, 413):
            # The rest of the body may still be on its way.
            return [(b"connection", b"close")]
        if self.allow:
            return [(b"allow", self.allow.encode())]
        return []


def bad(param: str, message: str) -> ApiError:
    """Return the refusal (400) for a parameter with a wrong value."""
    return ApiError(400, message, code="invalid_value", param=param)


def refused(status: int, reason: str, detail: str) -> ApiError:
    """Return the error that a manager or worker reported for a command or a turn."""
    if status == _CANCELLED:
        # Only a late retry still waits for a cancelled turn; its next try starts a new turn.
        status = 503
    return ApiError(status, detail or reason or "the turn failed", code=reason)
