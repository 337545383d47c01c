"""Exactness of sampling: the parameters an engine gets, and whether its log-probs are exact.

An engine's log-probs are those of the model's distribution at the turn's temperature, over the
whole vocabulary (`logprob_temperature`). So a temperature is exact, and everything else that
changes the distribution is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seamlessflow.infra.settings import COLDEST
from seamlessflow.schemas.records import Sampling

TRUNCATIONS = ("top_p", "top_k")
"""The reasons that `PolicyWeights.train_truncated` is about."""

# Values with which a parameter leaves the distribution as the model computes it.
_NEUTRAL = {
    "min_p": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "min_tokens": (None, 0),
}
_UNTRUNCATED = {"top_p": (None, 1.0), "top_k": (None, 0, -1)}
_UNSET = vars(Sampling())


def effective_sampling(asked: Sampling, overrides: Sampling, room: int) -> Sampling:
    """Return the parameters `asked` for with the policy's `overrides` applied.

    The least limit of length counts: the agent's, the policy's, or `room`, the number of tokens
    that still fit into the context. All other overrides replace what was asked for.
    """
    changed = {name: value for name, value in vars(overrides).items() if value != _UNSET[name]}
    limits = (room, asked.max_tokens, overrides.max_tokens)
    changed["max_tokens"] = min(limit for limit in limits if limit is not None)
    return replace(asked, **changed)


def inexact_reason(sampling: Sampling) -> str:
    """Return the parameter that makes the sampled distribution differ from the log-probs.

    Empty if they are exact. A truncation is named only if nothing else is inexact. A forced tool
    call is exact: its opening is in the prompt, and no engine constrains what is sampled behind it.
    """
    if sampling.temperature is not None and sampling.temperature < COLDEST:
        return "greedy"
    if name := _first_bent(sampling, _NEUTRAL):
        return name
    if sampling.logit_bias:
        return "logit_bias"
    if sampling.json_schema is not None:
        return "json_schema"
    return _first_bent(sampling, _UNTRUNCATED)


def logprob_temperature(sampling: Sampling) -> float:
    """Return the temperature of the log-probs that engines report; of a greedy turn, 1."""
    return sampling.temperature or 1.0


def _first_bent(sampling: Sampling, neutral: Mapping[str, Sequence[float | None]]) -> str:
    """Return the first of these parameters that changes the distribution, or an empty string."""
    return next(
        (name for name, values in neutral.items() if getattr(sampling, name) not in values), ""
    )
