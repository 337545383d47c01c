"""The OpenAI completions dialect, to the agent: replies to JSON and server-sent events. Pure.

A response is called `cmpl-<turn id>`. Tokens have no text here, so `text_offset` counts in the
tokens' names.
"""

from collections.abc import Sequence
from itertools import accumulate

import orjson

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.dialect import Piece
from producers.gateway.dialects.openai_shape import OpenAiEvents, head, tail
from producers.gateway.dialects.response_ids import COMPLETION
from producers.gateway.dialects.scores import Score, scores
from schemas.records import ReplyFinished

_KIND = "text_completion"


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """The body of a whole answer with one choice for each of `answers`."""
    choices = [_whole(number, answer, request) for number, answer in enumerate(answers)]
    body = {
        **head(COMPLETION + turn_id, _KIND, created, request),
        "choices": choices,
        **tail(answers),
    }
    return orjson.dumps(body)


class Completions(OpenAiEvents):
    """Makes the events of one streamed answer; each method gives bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        super().__init__(head(COMPLETION + turn_id, _KIND, created, request), request.include_usage)
        self._most = request.sampling.top_logprobs
        self._offsets: dict[int, int] = {}

    def delta(self, choice: int, piece: Piece) -> bytes:
        """More text of a choice."""
        scored = scores(
            piece.token_ids, piece.logprobs, piece.tensors, self._most, piece.from_token
        )
        text = _text(piece.delta)
        if not text and not scored:
            return b""
        begin = self._offsets.get(choice, 0)
        if scored is not None:
            self._offsets[choice] = begin + sum(len(score.token) for score in scored)
        shown = None if scored is None else _shown(scored, self._most, begin)
        return self._event(_choice(choice, text, shown, None))

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """The end of a choice."""
        return self._event(_choice(choice, "", None, answer.finish_reason))

    def _event(self, choice: dict[str, object]) -> bytes:
        return self._head + b"," + orjson.dumps({"choices": [choice]})[1:] + b"\n\n"


def _whole(number: int, answer: ReplyFinished, request: CanonicalRequest) -> dict[str, object]:
    most, shown = request.sampling.top_logprobs, None
    if request.wants_logprobs:
        scored = scores(answer.token_ids, answer.logprobs, answer.tensors, most)
        shown = None if scored is None else _shown(scored, most, 0)
    return _choice(number, _text(answer.message or b"{}"), shown, answer.finish_reason)


def _choice(
    number: int, text: str, logprobs: dict[str, object] | None, reason: str | None
) -> dict[str, object]:
    return {"text": text, "index": number, "logprobs": logprobs, "finish_reason": reason}


def _text(message: bytes) -> str:
    return orjson.loads(message).get("content") or ""


def _shown(scored: Sequence[Score], most: int, begin: int) -> dict[str, object]:
    lengths = [len(score.token) for score in scored]
    return {
        "tokens": [score.token for score in scored],
        "token_logprobs": [score.logprob for score in scored],
        "top_logprobs": [_candidates(score) for score in scored] if most else None,
        "text_offset": list(accumulate(lengths, initial=begin))[:-1],
    }


def _candidates(score: Score) -> dict[str, float]:
    """The likeliest tokens and, as the vendor has it, the sampled one."""
    return {**dict(score.top), score.token: score.logprob}
