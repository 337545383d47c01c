"""The OpenAI completions dialect, from the agent: HTTP body to `CanonicalRequest`. Pure.

A prompt stands as it is, without a chat template: plain text, or token ids of the policy's model.
One call has one prompt, since it is one turn of a session.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from producers.gateway.dialects.canonical import CanonicalRequest, canonical_json
from producers.gateway.dialects.parameters import (
    Check,
    bounded,
    flag,
    given,
    includes_usage,
    text,
    unsupported,
    whole,
)
from producers.gateway.dialects.sampling_parameters import NOT_DONE, refuse, sampling
from producers.gateway.errors import bad
from schemas.records import Sampling

DIALECT = "openai.completions"
MOST_LOGPROBS = 5
DEFAULT_MAX_TOKENS = 16
_MOST_IDS = 2**31


@bounded
def parse(body: bytes, max_choices: int) -> CanonicalRequest:
    """Reads a request body. Raises `ApiError` (400) that names the wrong parameter."""
    request = given(body)
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
        raw=True,
    )


def _prompt(value: object) -> dict[str, object]:
    match value:
        case "" | [] | [""] | [[]]:
            raise bad("prompt", "prompt must not be empty")
        case str(words) | [str(words)]:
            return {"content": words}
        case [[*ids]] | ([int(), *_] as ids):
            return {"ids": _token_ids(ids)}
        case [str() | list(), *_]:
            raise bad("prompt", f"prompt holds {len(value)} prompts: one call takes one")
    raise bad("prompt", "prompt must be text or a list of token ids")


def _token_ids(ids: Sequence[Any]) -> list[int]:
    for place, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < _MOST_IDS:
            raise bad("prompt", f"prompt has no token id at place {place}")
    return list(ids)


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


_REFUSED: Mapping[str, Check] = {
    **NOT_DONE,
    "echo": _no_echo,
    "suffix": unsupported(""),
    "best_of": unsupported(1),
    "prompt_embeds": unsupported(),
    "response_format": unsupported({"type": "text"}),
    "max_completion_tokens": unsupported(),
}
