"""The seam between the protocols agents speak and everything else.

A dialect is pure: one module from its HTTP body to a `CanonicalRequest`, one from replies to its
bytes. Another protocol is another `Dialect` and a line in `app.py`.
"""

from collections.abc import Sequence
from typing import Protocol

from producers.gateway import chat_request, chat_response
from producers.gateway.canonical import CanonicalRequest
from producers.gateway.errors import ApiError
from schemas.records import ReplyFinished


class Events(Protocol):
    """Writes one streamed answer; each method gives the bytes to send next."""

    def delta(
        self, choice: int, delta: bytes, token_ids: bytes | None, logprobs: bytes | None
    ) -> bytes:
        """More of a choice: what tokens add to its message, and their log-probs if asked for."""

    def finish(self, choice: int, reason: str) -> bytes:
        """A choice is complete."""

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """All choices are."""

    def failed(self, error: ApiError) -> bytes:
        """No more will come."""


class Dialect(Protocol):
    """One protocol of agents."""

    def parse(self, body: bytes, max_choices: int) -> CanonicalRequest:
        """Reads a request. Raises `ApiError`."""

    def completion(
        self,
        turn_id: str,
        created: int,
        request: CanonicalRequest,
        answers: Sequence[ReplyFinished],
    ) -> bytes:
        """The body of a whole answer."""

    def events(self, turn_id: str, created: int, request: CanonicalRequest) -> Events:
        """A writer for a streamed answer."""


class OpenAiChat:
    """`POST /v1/chat/completions`."""

    parse = staticmethod(chat_request.parse)
    completion = staticmethod(chat_response.completion)
    events = staticmethod(chat_response.Chunks)
