"""Chains that the gateway gives: those of an export, in lists of numbers."""

import random
from dataclasses import replace

import numpy as np

from seamlessflow.producers.gateway.calls.chains import trained_chains
from seamlessflow.recorded.export.forms import sampled_chains
from seamlessflow.schemas.records import Trajectory
from tests.builders.trainer.trajectories import Run, trajectory
from tests.seed import seed

TWO_TURNS = (
    Run([1, 2], origin="prompt"),
    Run([10, 11], parent=0, parent_end=2, versions=(3, 4), logprobs=(-1.0, -2.0)),
    Run([20], origin="prompt", turn="t1", parent=1, parent_end=2),
    Run([12], turn="t1", parent=2, parent_end=1, trained=False, temperature=0.5),
)


def random_tree(rng: random.Random) -> Trajectory:
    """Return a trajectory of any shape: branches, empty nodes, policies, unknown versions."""
    runs: list[Run] = []
    for number in range(rng.randint(1, 9)):
        parent = rng.randint(-1, number - 1)
        run = Run(
            [rng.randrange(100) for _ in range(rng.randint(0, 4))],
            origin=rng.choice(("prompt", "policy")),
            turn=f"t{number}",
            parent=parent,
            parent_end=0 if parent < 0 else rng.randint(0, len(runs[parent].ids)),
            trained=rng.random() < 0.7,
            policy=rng.choice(("", "", "other")),
            temperature=rng.choice((1.0, 0.5)),
        )
        runs.append(run)
    made = trajectory(runs)
    spans = [
        replace(span, version_max=span.version_max + rng.choice((0, 0, 1))) for span in made.spans
    ]
    return replace(made, spans=tuple(spans))


def test_a_session_is_one_chain_with_its_turns() -> None:
    (chain,) = trained_chains(trajectory(TWO_TURNS))
    assert chain == {
        "policy": "tiny",
        "prompt_length": 2,
        "token_ids": [1, 2, 10, 11, 20, 12],
        "mask": [False, False, True, True, False, False],
        "sampled": [False, False, True, True, False, True],
        "logprobs": chain["logprobs"],
        "temperatures": [1.0, 1.0, 1.0, 1.0, 1.0, 0.5],
        "versions": [-1, -1, 3, 4, -1, 0],
        "turn_numbers": [-1, -1, 0, 0, -1, 1],
        "turns": ["t0", "t1"],
    }
    assert chain["logprobs"][2:4] == [-1.0, -2.0]


def test_a_session_without_samples_has_no_chain() -> None:
    assert trained_chains(trajectory([Run([1], origin="prompt")])) == []
    assert trained_chains(trajectory([])) == []


def test_chains_of_any_tree_are_those_of_an_export() -> None:
    rng = random.Random(seed)
    for _ in range(300):
        made = random_tree(rng)
        chains = trained_chains(made)
        exported = list(sampled_chains(made))
        assert len(chains) == len(exported), f"seed {seed}"
        for chain, expected in zip(chains, exported, strict=True):
            tokens = expected.chain.tokens
            numbers = np.unique(tokens.turns_T[tokens.turns_T >= 0])
            arrays = {
                "token_ids": tokens.ids_T,
                "mask": expected.trained_T,
                "sampled": expected.sampled_T,
                "logprobs": tokens.logprobs_T,
                "temperatures": tokens.temperatures_T,
                "versions": expected.versions_T,
            }
            assert {name: array.tolist() for name, array in arrays.items()} == {
                name: chain[name] for name in arrays
            }, f"seed {seed}"
            assert chain["turns"] == [expected.chain.turns[number] for number in numbers]
            assert chain["policy"] == expected.policy
