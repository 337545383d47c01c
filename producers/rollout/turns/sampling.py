"""The sampling of a `GenerateTurn` as the engine's parameters. Pure."""

from collections.abc import Sequence

import xxhash

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import GenerateTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES


def sampling_params(
    request: GenerateTurn, stop_token_ids: Sequence[int], max_context: int
) -> SamplingParams:
    """Return the engine's parameters; `max_context` bounds prompt and completion together.

    The prompt must leave room for a token. Raises `ValueError` for values outside their range.
    """
    asked = request.sampling
    room = max_context - len(request.prompt_ids) // TOKEN_BYTES
    return SamplingParams(
        max_tokens=room if asked.max_tokens is None else min(asked.max_tokens, room),
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        top_k=max(asked.top_k or 0, 0),
        stop_token_ids=tuple(stop_token_ids),
        seed=None if asked.seed is None else turn_seed(request, asked.seed),
        top_logprobs=asked.top_logprobs,
        json_schema=asked.json_schema,
        session=session_name(request.session_id),
        choice=request.choice,
    )


def turn_seed(request: GenerateTurn, seed: int) -> int:
    """Return a different seed for each session, turn, choice and offset to continue from.

    With one seed for all, samples of the same prompt would be equal.
    """
    offset = len(request.completion_ids) // TOKEN_BYTES
    parts = (seed, request.session_id, request.turn_id, request.choice, offset)
    digest: int = xxhash.xxh3_64_intdigest(repr(parts).encode())
    return digest >> 1  # engines take signed numbers
