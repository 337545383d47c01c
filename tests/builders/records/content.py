"""Token ids, log-probs and messages as the bytes in which records carry them."""

from typing import Any

import numpy as np
import orjson

from seamlessflow.schemas.tokens import pack


def ids(*tokens: int) -> bytes:
    return pack(tokens)


def logprobs(count: int) -> bytes:
    return np.full(count, -0.25, "<f4").tobytes()


def message(role: str, content: str | None, **more: Any) -> bytes:
    return orjson.dumps({"role": role, "content": content, **more}, option=orjson.OPT_SORT_KEYS)
