"""The seam between the protocols agents speak and everything else.

A dialect is pure: one from its HTTP body to a `CanonicalRequest`, one from replies to its bytes.
Another protocol is another module with a `Dialect`, and a line in `dialects.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.errors import ApiError
from schemas.records import ReplyFinished, TokenTensor

CHAT = "chatcmpl-"
COMPLETION = "cmpl-"
MESSAGE = "msg_"
RESPONSE = "resp_"
_PREFIXES = (CHAT, COMPLETION, MESSAGE, RESPONSE)


class ChoiceDelta(NamedTuple):
    """More of a choice: what some tokens add to its message (JSON, `{}` for nothing yet).

    The rest is there where log-probs were asked for: int32 ids, float32 log-probs, the arrays
    `topk_ids` and `topk_logprobs`, and the number of the first token in the completion.
    """

    delta: bytes
    token_ids: bytes | None = None
    logprobs: bytes | None = None
    tensors: Sequence[TokenTensor] = ()
    from_token: int = 0


class Events(Protocol):
    """Writes one streamed answer; each method gives the bytes to send next."""

    def open(self, prompt_tokens: int) -> bytes:
        """The answer begins. Called once and first; `prompt_tokens` is 0 where it is unknown."""

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """More of a choice."""

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """A choice is complete; all of it was given to `delta`."""

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """All choices are."""

    def failed(self, error: ApiError) -> bytes:
        """No more will come."""

    def keep_alive(self) -> bytes:
        """Nothing new, but the connection is alive."""


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

    def error_body(self, error: ApiError) -> bytes:
        """An error in the vendor's shape."""


def turn_of(response_id: str) -> str:
    """The turn that a response of any dialect answers; a turn's own id is taken as well."""
    for prefix in _PREFIXES:
        if response_id.startswith(prefix):
            return response_id.removeprefix(prefix)
    return response_id
