"""The interface between the protocols that agents speak and the rest of the gateway.

A dialect is a set of pure functions: from an HTTP body to a `CanonicalRequest`, and from replies to
the bytes of an answer. A new protocol is a module or folder beside the others and a line in
`routes.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished, TokenTensor

# A response id is the prefix of its dialect and the id of its turn.
CHAT = "chatcmpl-"
COMPLETION = "cmpl-"
MESSAGE = "msg_"
RESPONSE = "resp_"
_PREFIXES = (CHAT, COMPLETION, MESSAGE, RESPONSE)


class ChoiceDelta(NamedTuple):
    """The next part of a choice: what some tokens add to its message (JSON, maybe `{}`).

    It adds reasoning, text or to one call, never two of these (`calls/streamed.py`).
    The other fields are set if log-probs were asked for: int32 ids, float32 log-probs, the arrays
    `topk_ids` and `topk_logprobs`, and the number of the first token in the completion.
    """

    delta: bytes
    token_ids: bytes | None = None
    logprobs: bytes | None = None
    tensors: Sequence[TokenTensor] = ()
    from_token: int = 0


class Events(Protocol):
    """The writer of one streamed answer. Each method returns the bytes to send next, maybe none."""

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the answer. Called once and first; `prompt_tokens` is 0 if it is not known."""

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the next part of a choice."""

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a choice whose whole message was passed to `delta`."""

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the answer after all choices."""

    def failed(self, error: ApiError) -> bytes:
        """End an answer that failed after it began."""

    def keep_alive(self) -> bytes:
        """Write bytes that every client skips, to show that the call is alive."""


class Dialect(Protocol):
    """One protocol that agents speak."""

    stream_type: bytes
    """Content type of a streamed answer."""

    waiting: bytes
    """Bytes that every client skips, to show before an answer begins that the call is alive."""

    def parse(self, body: bytes, max_choices: int) -> CanonicalRequest:
        """Return the request in an HTTP body. Raises `ApiError` (400)."""

    def completion(
        self,
        turn_id: str,
        created: int,
        request: CanonicalRequest,
        answers: Sequence[ReplyFinished],
    ) -> bytes:
        """Return the body of a whole answer."""

    def events(self, turn_id: str, created: int, request: CanonicalRequest) -> Events:
        """Return a writer for a streamed answer."""

    def error_body(self, error: ApiError) -> bytes:
        """Return the body of an error in the vendor's format."""


def turn_of(response_id: str) -> str:
    """Return the turn of a response id of any dialect. A turn's own id is returned as it is."""
    for prefix in _PREFIXES:
        if response_id.startswith(prefix):
            return response_id.removeprefix(prefix)
    return response_id
