"""Exactness of sampling: the parameters an engine gets, and whether its raw log-probs are exact."""

from dataclasses import replace

from schemas.records import Sampling

# Values with which a parameter leaves the distribution as the model computes it.
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
_UNSET = vars(Sampling())


def effective_sampling(asked: Sampling, overrides: Sampling, room: int) -> Sampling:
    """Return the parameters `asked` for with the policy's `overrides` applied.

    `room`: number of tokens that still fit into the context.
    """
    changed = {name: value for name, value in vars(overrides).items() if value != _UNSET[name]}
    limit = changed.get("max_tokens", asked.max_tokens)
    changed["max_tokens"] = min(_DEFAULT_MAX_TOKENS if limit is None else limit, room)
    return replace(asked, **changed)


def inexact_reason(sampling: Sampling, tool_choice: str) -> str:
    """Return the parameter that makes the sampled distribution differ from the raw log-probs.

    Empty if they are exact.
    """
    for name, neutral in _NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            return name
    if sampling.logit_bias:
        return "logit_bias"
    if sampling.json_schema is not None:
        return "json_schema"
    return "forced_tool" if tool_choice not in ("auto", "none") else ""
