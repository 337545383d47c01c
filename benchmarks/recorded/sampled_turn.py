"""Output of a worker for one turn."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import TOKEN_BYTES


def outputs(
    asked: r.GenerateTurn, sampled: bytes, message: bytes, progressed: int, at_ms: int
) -> Iterator[Record]:
    """Yield `progressed` records of about equal length, then the rest with the parsed `message`."""
    count, done = len(sampled) // TOKEN_BYTES, 0
    logprobs = np.linspace(-2, 0, count, dtype=np.float32).tobytes()
    for number in range(progressed + 1):
        end = count * (number + 1) // (progressed + 1)
        fields: dict[str, Any] = {
            "session_id": asked.session_id,
            "turn_id": asked.turn_id,
            "dispatch": asked.dispatch,
            "worker": asked.worker,
            "incarnation": asked.incarnation,
            "token_offset": done,
            "token_ids": sampled[4 * done : 4 * end],
            "logprobs": logprobs[4 * done : 4 * end],
            "spans": (r.VersionSpan(start=done, version_min=0, version_max=0),),
            "at_ms": at_ms,
            "delta": message[: 4 * (end - done)],
        }
        if number < progressed:
            yield r.TurnProgressed(**fields)
        else:
            yield r.TurnCompleted(
                **fields,
                finish_reason="tool_calls",
                message=message,
                well_formed=True,
                prompt_length=len(asked.prompt_ids) // TOKEN_BYTES,
                prompt_hash=asked.prompt_hash,
            )
        done = end
