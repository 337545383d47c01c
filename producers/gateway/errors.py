"""How a call can fail, as the HTTP status it gets.

`ApiError` is raised anywhere below the router, which answers it in the agent's dialect.
`ClientGone` ends a call that nobody waits for.
"""

import re

from infra.errors import SeamlessFlowError

PROMPT_TOO_LONG = "prompt_too_long"
"""Reason of manager and worker; each vendor has words of its own for it, which agents look for."""

_LOWEST, _HIGHEST = 400, 599
_CANCELLED = 499
_LONGEST_MESSAGE = 2000
_LENGTHS = re.compile(r"the prompt has (\d+) tokens, the context (?:holds )?(\d+)")


class ClientGone(SeamlessFlowError):
    """The client closed its connection before it had its answer."""


class ApiError(SeamlessFlowError):
    """A call is refused. `param` names what was wrong in it, `code` is for programs; `allow` is the
    method that a path takes."""

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
        """What logs call the call, once it is known."""
        super().__init__(f"{self.status} {code}: {self.message}")

    @property
    def prompt_lengths(self) -> tuple[int, int] | None:
        """Tokens of a prompt that is too long, and of the context it does not fit into."""
        found = _LENGTHS.search(self.message) if self.code == PROMPT_TOO_LONG else None
        return None if found is None else (int(found[1]), int(found[2]))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that tell a client whether and when to try again."""
        if self.status in (429, 503):
            return [(b"retry-after", b"1")]
        if self.status == 409:
            # The official client repeats a 409, but a closed session never opens again.
            return [(b"x-should-retry", b"false")]
        if self.status in (408, 413):
            return [(b"connection", b"close")]
        if self.allow:
            return [(b"allow", self.allow.encode())]
        return []


def bad(param: str, message: str) -> ApiError:
    """A parameter is not as it should be."""
    return ApiError(400, message, code="invalid_value", param=param)


def refused(status: int, reason: str, detail: str) -> ApiError:
    """What the manager said to a command or about a turn."""
    if status == _CANCELLED:
        # Only a retry that came too late waits for a cancelled turn; its next try starts anew.
        status = 503
    return ApiError(status, detail or reason or "the turn failed", code=reason)
