"""Log-probabilities of an answer's tokens, as dialects show them. Pure.

The gateway has no tokenizer, so a token is called `token_id:<id>`.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from schemas.records import TokenTensor
from schemas.tokens import unpack

_LEAST = -9999.0
_BYTES = 4


class Score(NamedTuple):
    """A sampled token, and the likeliest ones in its place, most likely first."""

    token: str
    logprob: float
    top: list[tuple[str, float]]


def scores(
    token_ids: bytes | None,
    logprobs: bytes | None,
    tensors: Sequence[TokenTensor] = (),
    most: int = 0,
    from_token: int = 0,
) -> list[Score] | None:
    """A score a token with `most` others each; none where there are no log-probs.

    `from_token`: number of the first token in the completion, where rows of `tensors` count from.
    """
    if token_ids is None or logprobs is None:
        return None
    rows = dict(_rows(tensors)) if most else {}
    pairs = zip(_ids(token_ids), _values(logprobs), strict=True)
    return [
        Score(token, value, rows.get(number, [])[:most])
        for number, (token, value) in enumerate(pairs, from_token)
    ]


def scores_json(token_ids: bytes, logprobs: bytes, template: bytes) -> bytes:
    """A JSON array of `template % (id, log-prob)` a token; a fifth of what objects cost."""
    ids = unpack(token_ids)
    shown = orjson.dumps(_values(logprobs))[1:-1].split(b",") if ids else ()
    return b"[%b]" % b",".join([template % pair for pair in zip(ids, shown, strict=True)])


def _rows(tensors: Sequence[TokenTensor]) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """The likeliest tokens by the number of the token in whose place they would have been."""
    ids = {tensor.from_token: tensor for tensor in tensors if tensor.name == "topk_ids"}
    for tensor in tensors:
        tokens, count = ids.get(tensor.from_token), tensor.to_token - tensor.from_token
        if tensor.name != "topk_logprobs" or tokens is None or count < 1:
            continue
        row = list(zip(_ids(tokens.data or b""), _values(tensor.data or b""), strict=True))
        width = len(row) // count
        for n in range(count):
            yield tensor.from_token + n, row[n * width : (n + 1) * width]


def _ids(data: bytes) -> list[str]:
    return [f"token_id:{token}" for token in unpack(data)]


def _values(data: bytes) -> list[float]:
    """JSON has no minus infinity."""
    return [max(value, _LEAST) for value in struct.unpack(f"<{len(data) // _BYTES}f", data)]
