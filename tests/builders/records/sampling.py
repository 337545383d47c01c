"""Sampling parameters, by what they do to the distribution that tokens are drawn from."""

from collections.abc import Mapping
from typing import Any

BENT_SAMPLING: Mapping[str, Any] = {
    "temperature": 0.0,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "repetition_penalty": 1.1,
    "logit_bias": {"1": 2.0},
    "min_tokens": 3,
    "json_schema": "{}",
}
"""Parameters that bend the distribution, each with a value that does; such tokens are masked."""

PLAIN_SAMPLING = ("max_tokens", "seed", "stop", "top_logprobs", "one_tool_call")
"""Parameters that leave the distribution as it is."""

BY_REQUEST = ("logit_bias", "json_schema")
"""Bending parameters that a policy does not replace: they are masked if an agent asks for them."""
