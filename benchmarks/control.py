"""Rules that end turns early: a worker's CPU time for each token.

    python -m benchmarks control [--tokens 20000] [--chunk 8]

The rule sees chunks as a dispatch does, with the bytes that an engine delivers. Figures are
microseconds a token, the median over some turns: for the rule, and with its state for each chunk.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import orjson

from seamlessflow.producers.rollout.control.controlled import ControlledTurn, TokenRows
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.schemas.records import GenerateTurn, Sampling, TurnControl

_TURNS = 5
_RULES: Mapping[str, Mapping[str, Any]] = {
    "confidence": {"floor": 1.61, "tail": 1.61, "spike": 2.9},
    "repetition": {"period": 64, "times": 1000},
    "budget": {"tokens": 2**30},
}
"""Settings by which no turn is ended."""
_MARKS = (1, 2)


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks control", description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--chunk", type=int, default=8)
    asked = parser.parse_args(argv)
    figures: dict[str, float] = {}
    for name in _RULES:
        for states in (False, True):
            took = median(_seconds(name, asked.tokens, asked.chunk, states) for _ in range(_TURNS))
            label = f"{name}_with_state_us" if states else f"{name}_us"
            figures[label] = round(1e6 * took / asked.tokens, 2)
    print(json.dumps({"benchmark": "control", **vars(asked), **figures}))


def _seconds(name: str, tokens: int, chunk: int, states: bool) -> float:
    turn = _turn(name)
    chunks = [_rows(begin, min(chunk, tokens - begin)) for begin in range(0, tokens, chunk)]
    began = time.process_time()
    for number, rows in enumerate(chunks):
        turn.feed(rows, number * chunk)
        if states:
            len(turn.state)
    took = time.process_time() - began
    if turn.verdict is not None or turn.error:
        raise RuntimeError(f"{name} ended the turn: {turn.verdict} {turn.error}")
    return took


def _turn(name: str) -> ControlledTurn:
    settings = orjson.dumps(_RULES[name], option=orjson.OPT_SORT_KEYS)
    request = GenerateTurn(
        session_id="s",
        turn_id="t",
        dispatch=1,
        epoch=1,
        partition=0,
        worker="w",
        incarnation="i",
        prompt_ids=b"",
        prompt_hash=b"",
        completion_ids=b"",
        sampling=Sampling(),
        stream=False,
        policy="policy",
        deadline_ms=0,
        control=TurnControl(name=name, settings=settings),
    )
    turn = UsedRules().controlled(request, _MARKS, ())
    if turn is None:
        raise RuntimeError("the turn has no rule")
    return turn


def _rows(begin: int, count: int) -> TokenRows:
    """Return tokens from a policy that is surer about some than about others."""
    random = np.random.default_rng(begin)
    logits_NK = -np.sort(random.exponential(2.0, (count, 20)).astype("<f4"), axis=1)
    logprobs_NK = logits_NK - np.log(np.exp(logits_NK).sum(axis=1, keepdims=True))
    ids = random.integers(3, 150_000, count).astype("<i4")
    top = logprobs_NK.astype("<f4").tobytes()
    return TokenRows(ids.tobytes(), logprobs_NK[:, 0].astype("<f4").tobytes(), top, 20)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
