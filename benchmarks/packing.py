"""Tokens a second from trajectories to micro-batches, on one thread.

    python -m benchmarks packing [--sessions 512] [--turns 8] [--turn-tokens 256]
    python -m benchmarks packing --train [--groups 2] [--group-size 8] [--prompt 1024] [--answer 64]

`chains`: from `Trajectory` records to chains; `pack`: from chains to micro-batches; `both`: both
together. Prints millions of tokens a second. With `--train` a small model is trained instead, on
groups that share a long prompt. Then it prints a step's computed tokens and CPU seconds, by layout.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

import numpy as np

from benchmarks.recorded.shared_prompts import Workload, steps
from seamlessflow.schemas.records import Trajectory, TrajectoryNode, VersionSpan
from seamlessflow.trainer.data.chains import Chain, chains
from seamlessflow.trainer.data.packing import Layout, pack

_REPEATS = 5


def main(arguments: Sequence[str]) -> None:
    """Print each part's best repeat as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=512)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--turn-tokens", type=int, default=256)
    parser.add_argument("--budget", type=int, default=32_768)
    parser.add_argument("--train", action="store_true")
    for name, value in {"groups": 2, "group-size": 8, "prompt": 1024, "answer": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args(arguments)
    if asked.train:
        load = Workload(
            groups=asked.groups,
            group_size=asked.group_size,
            prompt=asked.prompt,
            answer=asked.answer,
        )
        print(json.dumps(steps(load)))
        return
    print(json.dumps(speeds(asked)))


def speeds(asked: argparse.Namespace) -> dict[str, float]:
    """Return how fast each part is."""
    random = np.random.default_rng(0)
    sessions = [session(random, n, asked.turns, asked.turn_tokens) for n in range(asked.sessions)]
    tokens = sum(len(trajectory.loss_mask) for trajectory in sessions)
    made = [chain for trajectory in sessions for chain in chains(trajectory, "tiny").chains]
    rates: dict[str, float] = {"sessions": len(sessions), "tokens": tokens}
    rates["chains"] = speed(tokens, lambda: [chains(trajectory, "tiny") for trajectory in sessions])
    for layout in get_args(Layout):
        packing = partial(pack, made, asked.budget, layout)
        rates[f"pack_{layout}"] = speed(tokens, packing)
        rates[f"both_{layout}"] = speed(tokens, partial(whole, sessions, asked.budget, layout))
    return rates


def whole(sessions: Sequence[Trajectory], budget: int, layout: Layout) -> None:
    """Make micro-batches from trajectories."""
    made: list[Chain] = [
        chain for trajectory in sessions for chain in chains(trajectory, "tiny").chains
    ]
    pack(made, budget, layout)


def speed(tokens: int, work: Callable[[], object]) -> float:
    """Return millions of tokens a second, in the best of a few repeats."""
    best = min(timed(work) for _ in range(_REPEATS))
    return round(tokens / best / 1e6, 1)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def session(random: np.random.Generator, number: int, turns: int, length: int) -> Trajectory:
    """Make a session without branches: each turn has a prompt and an answer of about `length`."""
    nodes: list[TrajectoryNode] = []
    masks, spans, start = [], [], 0
    for node in range(2 * turns):
        size = int(random.integers(length // 2, length * 3 // 2 + 1))
        sampled = node % 2 == 1
        nodes.append(
            TrajectoryNode(
                node_id=node,
                parent=node - 1,
                parent_end=nodes[-1].length if nodes else 0,
                start=start,
                length=size,
                origin="policy" if sampled else "tool",
                turn_id=f"t{node // 2}",
                log_offset=node,
            )
        )
        masks.append(bytes([sampled]) * size)
        if sampled:
            spans.append(VersionSpan(start=start, version_min=3, version_max=3))
        start += size
    ids = random.integers(0, 1000, start, np.int32)
    return Trajectory(
        session_id=f"g-{number}.0.0",
        policy="tiny",
        tokens=ids.tobytes(),
        logprobs=np.zeros(start, np.float32).tobytes(),
        loss_mask=b"".join(masks),
        spans=tuple(spans),
        nodes=tuple(nodes),
        status="complete",
        reason="",
        cause="policy",
        creation_version=3,
        turns=turns,
        tokenizer_hash="",
        partition=0,
        first_offset=0,
        last_offset=0,
        opened_at_ms=0,
        closed_at_ms=0,
        finalized_at_ms=0,
        fold_version=1,
    )
