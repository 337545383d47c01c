"""What the engine is told to do, and whether the log-probs it reports are those sampled from."""

from dataclasses import replace

from schemas.records import Sampling

_NEUTRAL = {
    "temperature": (None, 1.0),
    "top_p": (None, 1.0),
    "top_k": (None, 0, -1),
    "min_p": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "min_tokens": (None, 0),
}
_DEFAULT_MAX_TOKENS = 4096
_NOTHING = vars(Sampling())


def effective_sampling(asked: Sampling, overrides: Sampling, room: int) -> Sampling:
    """The policy's `overrides` win over what was `asked`; `room` tokens fit into the context."""
    won = {name: value for name, value in vars(overrides).items() if value != _NOTHING[name]}
    limit = won.get("max_tokens", asked.max_tokens)
    won["max_tokens"] = min(_DEFAULT_MAX_TOKENS if limit is None else limit, room)
    return replace(asked, **won)


def inexact_reason(sampling: Sampling, tool_choice: str) -> str:
    """Why the raw log-probs are not those of the distribution sampled from; empty when they are."""
    for name, neutral in _NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            return name
    if sampling.logit_bias:
        return "logit_bias"
    if sampling.json_schema is not None:
        return "json_schema"
    return "forced_tool" if tool_choice not in ("auto", "none") else ""
