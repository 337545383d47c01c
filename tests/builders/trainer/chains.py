"""Chains to train on: made up, or sampled from a tiny model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from seamlessflow.schemas.arrays import Float32s
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.data.chains import Chain, Column, chains, credited
from seamlessflow.trainer.data.credit.values import OUTPUTS
from tests.builders.trainer.models import VOCABULARY, logprobs, open_tiny, sample
from tests.builders.trainer.trajectories import Run, trajectory


def some_chains(seed: int = 0, count: int = 6) -> list[Chain]:
    """Return two-turn chains of uneven length with made-up log-probs near those of a model."""
    random = np.random.default_rng(seed)
    return [one_chain(random) for _ in range(count)]


def one_chain(random: np.random.Generator) -> Chain:
    def ids() -> list[int]:
        return [int(i) for i in random.integers(0, VOCABULARY, random.integers(1, 9))]

    def run(origin: str, parent: int, before: list[int]) -> Run:
        new = ids()
        said = [float(x) for x in random.normal(-3.5, 0.5, len(new))]
        return Run(new, origin, f"t{parent}", parent, len(before), logprobs=said)

    runs = [run("prompt", -1, [])]
    for number, origin in enumerate(["policy", "tool", "policy"]):
        runs.append(run(origin, number, list(runs[-1].ids)))
    return chains(trajectory(runs), "tiny").chains[0]


def forked_chains(seed: int = 0, groups: int = 2, sessions: int = 3) -> list[Chain]:
    """Return chains of groups with one prompt each, whose sessions fork at several depths."""
    made = forked_sessions(seed, groups, sessions)
    return [
        chain for group in made for session in group for chain in chains(session, "tiny").chains
    ]


def forked_sessions(seed: int = 0, groups: int = 2, sessions: int = 3) -> list[list[Trajectory]]:
    """Return the sessions of each group that these chains are of; each has another reward."""
    random = np.random.default_rng(seed)
    by_group = []
    for group in range(groups):
        prompt = _ids(random, 5)
        names = [f"g-{group}.{number}.0" for number in range(sessions)]
        by_group.append(
            [trajectory(_forks(random, prompt), name, n / 2) for n, name in enumerate(names)]
        )
    return by_group


def _forks(random: np.random.Generator, prompt: list[int]) -> list[Run]:
    """Return a prompt, an answer, a tool's result and an answer, with branches off each of them."""

    def sampled_run(turn: int, parent: int, parent_end: int) -> Run:
        ids = _ids(random, 4)
        said = [float(x) for x in random.normal(-3.5, 0.5, 4)]
        return Run(ids, "policy", f"t{turn}", parent, parent_end, logprobs=said)

    return [
        Run(prompt, "prompt"),
        sampled_run(0, 0, 5),
        Run(_ids(random, 3), "tool", "t1", 1, 4),
        sampled_run(1, 2, 3),
        sampled_run(2, 2, 3),
        sampled_run(3, 1, 2),
        sampled_run(4, 3, 1),
        sampled_run(5, 0, 3),
    ]


def _ids(random: np.random.Generator, length: int) -> list[int]:
    return [int(i) for i in random.integers(0, VOCABULARY, length)]


def with_advantages(originals: Sequence[Chain], advantages: Sequence[float]) -> list[Chain]:
    """Return the chains with one advantage each."""
    return [credited(*pair) for pair in zip(originals, advantages, strict=True)]


def with_returns(originals: Sequence[Chain], seed: int = 7) -> list[Chain]:
    """Return the chains with made-up returns for a critic, some of them near its values before."""
    random = np.random.default_rng(seed)
    total = sum(chain.trained() for chain in originals)
    made = []
    for chain in originals:
        count = chain.trained()
        columns = {
            Column.VALUE: random.normal(0, 0.5, count).astype(np.float32),
            Column.TARGET: random.normal(0, 1, count).astype(np.float32),
            Column.TARGET_WEIGHT: np.full(count, 1 / total, np.float32),
        }
        made.append(replace(chain, columns=columns))
    return made


def with_two_values(originals: Sequence[Chain], seed: int = 0) -> list[Chain]:
    """Return the chains with what a critic of two values learns, made up; not in all places."""
    random = np.random.default_rng(seed)
    made = []
    for chain in originals:
        count = chain.trained()
        columns: dict[Column, Float32s] = {**chain.columns}
        for output in OUTPUTS["habc"]:
            for lesson in output.lessons:
                targets_N = random.normal(0, 3, count)
                if output.loss == "cross_entropy":
                    targets_N = np.where(targets_N > 0, 1.0, 0.0)
                columns[lesson.target] = targets_N.astype("f4")
                weights_N = random.uniform(0, 0.1, count) * random.integers(0, 2, count)
                columns[lesson.weight] = weights_N.astype("f4")
        made.append(replace(chain, columns=columns))
    return made


def sampled(
    directory: Path, version: int, seed: int = 0, temperatures: Sequence[float] = (1.0,)
) -> list[Chain]:
    """Return chains sampled from the weights of a directory, with the exact log-probs.

    `temperatures`: those of the log-probs, one chain after the other.
    """
    torch.manual_seed(seed)
    model = open_tiny(directory)
    all_chains: list[Chain] = []
    for first in range(4):
        prompt = [first, 5]
        answer = sample(model, prompt, 6)
        at = temperatures[first % len(temperatures)]
        said = logprobs(model, [*prompt, *answer], at)[2:]
        sampled_at = {"versions": [version] * 6, "logprobs": said, "temperature": at}
        runs = [
            Run(prompt, "prompt"),
            Run(answer, parent=0, parent_end=2, **sampled_at),  # type: ignore[arg-type]
        ]
        all_chains.extend(chains(trajectory(runs), "tiny").chains)
    return all_chains
