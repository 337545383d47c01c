"""The OpenAI completions dialect: HTTP body to `CanonicalRequest`, replies to bytes. Pure.

A prompt is used as it is, without a chat template. It is plain text, or token ids for the policy's
model. One call has one prompt, since a call is one turn in a session. A response is called
`cmpl-<turn id>`. The gateway has no tokenizer, so `text_offset` counts characters in the tokens'
names.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest, canonical_json
from seamlessflow.producers.gateway.dialects.dialect import COMPLETION, ChoiceDelta, event
from seamlessflow.producers.gateway.dialects.openai_shape import OpenAiEvents, head, tail
from seamlessflow.producers.gateway.dialects.parameters import (
    ParameterCheck,
    flag,
    includes_usage,
    read_body,
    refuse,
    refuse_deep_nesting,
    text,
    token_ids,
    unsupported,
    wants_token_ids,
    whole,
)
from seamlessflow.producers.gateway.dialects.sampling_parameters import NOT_DONE, sampling
from seamlessflow.producers.gateway.dialects.scores import Score, id_list, scores
from seamlessflow.producers.gateway.errors import bad
from seamlessflow.schemas.records import ReplyFinished, Sampling

DIALECT = "openai.completions"
MOST_LOGPROBS = 5
DEFAULT_MAX_TOKENS = 16
_KIND = "text_completion"


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    stream = flag("stream", request.get("stream", False))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", request.get("model")),
        messages=(canonical_json({"role": "raw"} | _prompt(request.get("prompt")), "prompt"),),
        tools=None,
        template_args=None,
        sampling=_sampling(request),
        tool_choice="auto",
        choices=whole(1, max_choices)("n", request.get("n", 1)),
        stream=stream,
        include_usage=includes_usage(request.get("stream_options", {})) and stream,
        wants_logprobs="logprobs" in request,
        wants_token_ids=wants_token_ids(request),
        raw=True,
    )


def _prompt(value: object) -> dict[str, object]:
    match value:
        case "" | [] | [""] | [[]]:
            raise bad("prompt", "prompt must not be empty")
        case str(words) | [str(words)]:
            return {"content": words}
        case [[*ids]] | ([int(), *_] as ids):
            return {"ids": token_ids("prompt", list(ids))}
        case [str() | list(), *_]:
            raise bad("prompt", f"prompt holds {len(value)} prompts: one call takes one")
    raise bad("prompt", "prompt must be text or a list of token ids")


def _sampling(request: Mapping[str, Any]) -> Sampling:
    more: dict[str, int] = {}
    if "max_tokens" not in request:
        more["max_tokens"] = DEFAULT_MAX_TOKENS
    if most := whole(0, MOST_LOGPROBS)("logprobs", request.get("logprobs", 0)):
        more["top_logprobs"] = most
    return sampling(request, **more)


def _no_echo(name: str, value: Any) -> None:
    if flag(name, value):
        raise bad(name, "echo is not supported: prompts are neither repeated nor scored")


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return a whole answer's body, with one choice for each item in `answers`."""
    choices = [_whole(number, answer, request) for number, answer in enumerate(answers)]
    body = {
        **head(COMPLETION + turn_id, _KIND, created, request),
        "choices": choices,
        **tail(answers),
    }
    return orjson.dumps(body)


class CompletionEvents(OpenAiEvents):
    """The writer for one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        super().__init__(head(COMPLETION + turn_id, _KIND, created, request), request.include_usage)
        self._most = request.sampling.top_logprobs
        self._offsets: dict[int, int] = {}
        self._wants_ids = request.wants_token_ids
        self._begun: set[int] = set()

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write a choice's next text."""
        scored = scores(
            piece.token_ids, piece.logprobs, piece.tensors, self._most, piece.from_token
        )
        content = _text(piece.delta)
        if not content and not scored and not self._wants_ids:
            return b""
        begin = self._offsets.get(choice, 0)
        if scored is not None:
            self._offsets[choice] = begin + sum(len(score.token) for score in scored)
        shown = None if scored is None else _shown(scored, self._most, begin)
        return self._event(
            _choice(choice, content, shown, None)
            | self._ids(choice, piece.prompt_ids, piece.token_ids)
        )

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a choice."""
        # The earlier deltas named all tokens.
        no_more = None if answer.token_ids is None else b""
        return self._event(
            _choice(choice, "", None, answer.finish_reason)
            | self._ids(choice, answer.prompt_ids, no_more)
        )

    def _ids(
        self, choice: int, prompt_ids: bytes | None, token_ids: bytes | None
    ) -> dict[str, object]:
        """Return an event's token ids, if requested. A choice's first event also has its prompt."""
        if not self._wants_ids:
            return {}
        prompt = None if choice in self._begun else prompt_ids
        self._begun.add(choice)
        return _token_ids_of(prompt, token_ids)

    def _event(self, choice: dict[str, object]) -> bytes:
        return event(self._head + b"," + orjson.dumps({"choices": [choice]})[1:])


def _whole(number: int, answer: ReplyFinished, request: CanonicalRequest) -> dict[str, object]:
    most = request.sampling.top_logprobs
    shown = None
    if request.wants_logprobs:
        scored = scores(answer.token_ids, answer.logprobs, answer.tensors, most)
        shown = None if scored is None else _shown(scored, most, 0)
    choice = _choice(number, _text(answer.message or b"{}"), shown, answer.finish_reason)
    if not request.wants_token_ids:
        return choice
    return choice | _token_ids_of(answer.prompt_ids, answer.token_ids)


def _token_ids_of(prompt_ids: bytes | None, token_ids: bytes | None) -> dict[str, object]:
    """Return the members that name a choice's tokens."""
    return {"prompt_token_ids": id_list(prompt_ids), "token_ids": id_list(token_ids)}


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
    """Return the likeliest tokens with the sampled one, which the vendor always includes."""
    return {**dict(score.top), score.token: score.logprob}


_REFUSED: Mapping[str, ParameterCheck] = {
    **NOT_DONE,
    "echo": _no_echo,
    "suffix": unsupported(""),
    "best_of": unsupported(1),
    "prompt_embeds": unsupported(),
    "response_format": unsupported({"type": "text"}),
    "max_completion_tokens": unsupported(),
}
