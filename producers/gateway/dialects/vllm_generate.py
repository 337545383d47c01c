"""The dialect of vLLM's `/inference/v1/generate`: token ids in, token ids out. Pure.

Its clients render prompts and parse answers by themselves, for example the verifiers training
client. A prompt is used as it is, and an answer has no text. Log-probs name a token in two ways: as
vLLM does from 0.32 on (`token_id`), and as it did before (`token`).

A request's stop tokens, at which the client's renderer ends a message, go to the manager with the
prompt. The manager refuses those at which the policy's answers do not end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest, canonical_json
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta, event
from seamlessflow.producers.gateway.dialects.openai_shape import OpenAiEvents, tail
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

DIALECT = "vllm.generate"
MOST_LOGPROBS = 20
_ID = "token_id:"
_NAME, _SHOWS_PROMPT = "request_id", "return_token_ids"
"""Members in a request that its answer repeats or obeys."""


@refuse_deep_nesting
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Return the request in a body. Raises `ApiError` (400) that names the wrong parameter."""
    request = read_body(body)
    refuse(request, _REFUSED)
    parameters = _parameters(request.get("sampling_params", {}))
    refuse(parameters, _NOT_SAMPLED)
    stream = flag("stream", request.get("stream", False))
    return CanonicalRequest(
        dialect=DIALECT,
        model=text("model", request.get("model", "")),
        messages=(canonical_json(_prompt(request, parameters), "token_ids"),),
        tools=None,
        template_args=None,
        sampling=_sampling(parameters),
        tool_choice="auto",
        choices=whole(1, max_choices)("n", parameters.get("n", 1)),
        stream=stream,
        include_usage=includes_usage(request.get("stream_options", {})) and stream,
        wants_logprobs="logprobs" in parameters,
        wants_token_ids=True,
        raw=True,
        echoed={
            _NAME: text(_NAME, request.get(_NAME, "")),
            _SHOWS_PROMPT: wants_token_ids(request),
        },
    )


def _parameters(asked: object) -> dict[str, Any]:
    """Return the sampling parameters that are not null."""
    if not isinstance(asked, dict):
        raise bad("sampling_params", "sampling_params must be an object")
    return {name: value for name, value in asked.items() if value is not None}


def _prompt(request: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, object]:
    ids = token_ids("token_ids", request.get("token_ids"))
    if not ids:
        raise bad("token_ids", "token_ids must not be empty")
    stops = token_ids("stop_token_ids", parameters.get("stop_token_ids", []))
    prompt: dict[str, object] = {"role": "raw", "ids": ids}
    return {**prompt, "stop_token_ids": stops} if stops else prompt


def _sampling(parameters: Mapping[str, Any]) -> Sampling:
    # The sampled token is one of them, so a request for 1 needs no others.
    most = whole(0, MOST_LOGPROBS)("logprobs", parameters.get("logprobs", 0))
    more = {"top_logprobs": most} if most > 1 else {}
    return sampling(parameters, **more)


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return a whole answer's body, with one choice for each item in `answers`."""
    prompt = answers[0].prompt_ids if request.echoed[_SHOWS_PROMPT] else None
    body = {
        _NAME: request.echoed[_NAME] or turn_id,
        "created": created,
        "model": request.model,
        "choices": [_whole(number, answer, request) for number, answer in enumerate(answers)],
        "prompt_token_ids": id_list(prompt),
        **tail(answers),
    }
    return orjson.dumps(body)


class GenerateEvents(OpenAiEvents):
    """The writer for one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        super().__init__({_NAME: request.echoed[_NAME] or turn_id}, request.include_usage)
        self._most = request.sampling.top_logprobs
        self._scored = request.wants_logprobs
        self._shows_prompt = request.echoed[_SHOWS_PROMPT]
        self._begun: set[int] = set()

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write a choice's next tokens."""
        if piece.token_ids == b"":
            return b""
        scored = None
        if self._scored:
            scored = scores(
                piece.token_ids, piece.logprobs, piece.tensors, self._most, piece.from_token
            )
        part = _choice(choice, piece.token_ids, _shown(scored, self._most), None)
        return self._event(choice, part, piece.prompt_ids)

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a choice."""
        # The earlier deltas named all tokens.
        no_more = None if answer.token_ids is None else b""
        part = _choice(choice, no_more, None, answer.finish_reason)
        return self._event(choice, part, answer.prompt_ids)

    def _event(self, choice: int, part: dict[str, object], prompt_ids: bytes | None) -> bytes:
        """Return an event. A choice's first event has the prompt's ids, if requested."""
        body: dict[str, object] = {"choices": [part]}
        if self._shows_prompt and choice not in self._begun:
            body["prompt_token_ids"] = id_list(prompt_ids)
        self._begun.add(choice)
        return event(self._head + b"," + orjson.dumps(body)[1:])


def _whole(number: int, answer: ReplyFinished, request: CanonicalRequest) -> dict[str, object]:
    most = request.sampling.top_logprobs
    scored = None
    if request.wants_logprobs:
        scored = scores(answer.token_ids, answer.logprobs, answer.tensors, most)
    return _choice(number, answer.token_ids, _shown(scored, most), answer.finish_reason)


def _choice(
    number: int, ids: bytes | None, logprobs: dict[str, object] | None, reason: str | None
) -> dict[str, object]:
    return {
        "index": number,
        "token_ids": id_list(ids),
        "logprobs": logprobs,
        "finish_reason": reason,
    }


def _shown(scored: Sequence[Score] | None, most: int) -> dict[str, object] | None:
    """Return the tokens' log-probs. The sampled token stands first among the likeliest."""
    if scored is None:
        return None
    return {"content": [_content(score, max(most, 1)) for score in scored]}


def _content(score: Score, most: int) -> dict[str, object]:
    others = [pair for pair in score.top if pair[0] != score.token]
    listed = [(score.token, score.logprob), *others][:most]
    return {**_entry(*listed[0]), "top_logprobs": [_entry(*pair) for pair in listed]}


def _entry(token: str, logprob: float) -> dict[str, object]:
    return {
        "token_id": int(token.removeprefix(_ID)),
        "token": token,
        "logprob": logprob,
        "bytes": None,
    }


_REFUSED: Mapping[str, ParameterCheck] = {
    "features": unsupported(),
    "content_parts": unsupported([]),
    "output_mode": unsupported("tokens"),
}
_NOT_SAMPLED: Mapping[str, ParameterCheck] = {
    **{name: check for name, check in NOT_DONE.items() if name != "stop_token_ids"},
    # An answer without text leaves out no tokens.
    "include_stop_str_in_output": flag,
    "skip_special_tokens": flag,
    "logprob_token_ids": unsupported([]),
}
