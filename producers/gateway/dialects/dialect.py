"""The interface between the protocols that agents speak and the rest of the gateway.

A dialect is a set of pure functions. They turn an HTTP body into a `CanonicalRequest`, and replies
into an answer's bytes. A new protocol is a module or folder beside the others and a line in
`routes.py`.

In all dialects, an event in a stream has its JSON on one line. By the standard, a line ends only at
CR or LF. But some clients read a stream as lines of text, which also end at U+0085, U+2028 and
U+2029. JSON may contain these three characters unescaped. Here they are always escaped.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished, TokenTensor

# A response id is its dialect's prefix, then its turn's id.
CHAT = "chatcmpl-"
COMPLETION = "cmpl-"
MESSAGE = "msg_"
RESPONSE = "resp_"
_PREFIXES = (CHAT, COMPLETION, MESSAGE, RESPONSE)

_NEXT_LINE, _SEPARATORS = "\x85".encode(), b"\xe2\x80"
"""U+0085, and the first bytes that U+2028 and U+2029 share with many quotation marks."""
_ESCAPED = {end.encode(): f"\\u{ord(end):04x}".encode() for end in "\x85\u2028\u2029"}
_SPACES = bytes.maketrans(b"\r\n", b"  ")


class ChoiceDelta(NamedTuple):
    """A choice's next part: what some tokens add to its message (JSON, maybe `{}`).

    It adds reasoning, or text, or to one call, never two of these (`calls/streamed.py`). The other
    fields are set if log-probs were requested. They are int32 ids, float32 log-probs, the arrays
    `topk_ids` and `topk_logprobs`, and the first token's number in the completion. If token ids
    were requested, `token_ids` is set, and a choice's first part also has `prompt_ids`.
    """

    delta: bytes
    token_ids: bytes | None = None
    logprobs: bytes | None = None
    tensors: Sequence[TokenTensor] = ()
    from_token: int = 0
    prompt_ids: bytes | None = None


class Events(Protocol):
    """The writer for one streamed answer. Each method returns the bytes to send, maybe none."""

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the answer. Called first and only once; `prompt_tokens` is 0 if it is not known."""

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write a choice's next part."""

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
    """A streamed answer's content type."""

    waiting: bytes
    """Bytes that every client skips. They show that the call is alive before its answer begins."""

    def parse(self, body: bytes, max_choices: int) -> CanonicalRequest:
        """Return the request in an HTTP body. Raises `ApiError` (400)."""

    def completion(
        self,
        turn_id: str,
        created: int,
        request: CanonicalRequest,
        answers: Sequence[ReplyFinished],
    ) -> bytes:
        """Return a whole answer's body."""

    def events(self, turn_id: str, created: int, request: CanonicalRequest) -> Events:
        """Return a writer for a streamed answer."""

    def error_body(self, error: ApiError) -> bytes:
        """Return an error's body in the vendor's format."""


def turn_of(response_id: str) -> str:
    """Return a response id's turn, in any dialect. A turn's own id is returned as it is."""
    for prefix in _PREFIXES:
        if response_id.startswith(prefix):
            return response_id.removeprefix(prefix)
    return response_id


def event(body: bytes, kind: str = "") -> bytes:
    """Return an event with this JSON. A `kind` becomes the event's name."""
    if not kind:
        return b"data: %b\n\n" % on_one_line(body)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), on_one_line(body))


def on_one_line(body: bytes) -> bytes:
    """Return JSON without line ends: a call's arguments may have been sampled with some."""
    if b"\n" in body or b"\r" in body:
        body = body.translate(_SPACES)
    if _SEPARATORS in body or _NEXT_LINE in body:
        for end, escaped in _ESCAPED.items():
            body = body.replace(end, escaped)
    return body
