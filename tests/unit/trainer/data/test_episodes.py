"""Episodes: the tree of the trained tokens of a session, sums along it, rewards by turn."""

from collections.abc import Sequence

import numpy as np
import pytest

from seamlessflow.trainer.data.chains import NOWHERE, chains
from seamlessflow.trainer.data.episodes import Episode, accumulated, episode, following
from tests.builders.trainer.trajectories import Run, trajectory

PROMPT = Run([1, 2], "prompt")
FIRST = Run([3, 4, 5], turn="a", parent=0, parent_end=2)
TOOL = Run([6], "tool", parent=1, parent_end=3)
SECOND = Run([7, 8], turn="b", parent=2, parent_end=1)


def made(runs: Sequence[Run], **rewards: float) -> Episode:
    return episode(chains(trajectory(runs), "tiny").chains, 1.0, rewards)


def test_a_trained_token_follows_the_one_before_it_over_what_others_wrote() -> None:
    session = made([PROMPT, FIRST, TOOL, SECOND], b=0.5)

    assert session.turns_N.tolist() == [0, 0, 0, 1, 1]
    assert session.previous_N.tolist() == [NOWHERE, 0, 1, 2, 3]
    assert session.turn_rewards_K.tolist() == [0, 0.5]
    assert session.previous_turns == {0: NOWHERE, 1: 0}


def test_branches_follow_the_token_at_which_they_part() -> None:
    behind_two = Run([9], turn="c", parent=1, parent_end=2)
    apart = Run([5, 6], turn="d")
    session = made([PROMPT, FIRST, TOOL, SECOND, behind_two, apart])

    assert session.turns_N.tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert session.previous_N.tolist() == [NOWHERE, 0, 1, 2, 3, 1, NOWHERE]
    assert session.previous_turns == {0: NOWHERE, 1: 0, 2: 0, 3: NOWHERE}


def test_masked_tokens_are_left_out_of_the_tree() -> None:
    masked = Run([3, 4, 5], turn="a", parent=0, parent_end=2, trained=False)
    session = made([PROMPT, masked, TOOL, SECOND])

    assert session.turns_N.tolist() == [1, 1]
    assert session.previous_N.tolist() == [NOWHERE, 0]
    assert session.previous_turns == {1: NOWHERE}


def test_a_session_without_trained_tokens_is_empty() -> None:
    session = made([PROMPT])

    assert len(session) == 0
    assert session.previous_turns == {}


def test_each_token_follows_its_predecessor_in_every_chain() -> None:
    """Compare with a walk over the nodes of random trees."""
    random = np.random.default_rng(0)
    for _ in range(50):
        runs = [PROMPT]
        for number in range(int(random.integers(1, 8))):
            parent = int(random.integers(0, len(runs)))
            end = int(random.integers(1, len(runs[parent].ids) + 1))
            ids = random.integers(0, 9, int(random.integers(1, 4))).tolist()
            trained = bool(random.integers(0, 2))
            runs.append(Run(ids, turn=f"t{number}", parent=parent, parent_end=end, trained=trained))
        session = made(runs)
        expected = sorted(walked(runs))
        assert sorted(zip(*trained_places(runs, session), strict=True)) == expected


Place = tuple[int, int]


def trained_places(runs: Sequence[Run], session: Episode) -> tuple[list[Place], list[Place]]:
    """Return (node, offset) of each trained token and of the one before it."""
    turns = chains(trajectory(runs), "tiny").chains
    names = turns[0].turns if turns else ()
    nodes = {run.turn: number for number, run in enumerate(runs) if run.sampled}
    tokens = [chain.tokens for chain in turns]
    places = [
        (nodes[names[turn]], offset)
        for chain_tokens in tokens
        for turn, offset in zip(
            chain_tokens.turns_T[chain_tokens.trained_T].tolist(),
            chain_tokens.offsets_T[chain_tokens.trained_T].tolist(),
            strict=True,
        )
    ]
    return places, [(-1, -1) if n == NOWHERE else places[n] for n in session.previous_N.tolist()]


def walked(runs: Sequence[Run]) -> list[tuple[Place, Place]]:
    """Return the same pairs, from each token back over its ancestors."""
    pairs = []
    for number, run in enumerate(runs):
        if not (run.sampled and run.trained):
            continue
        for offset in range(len(run.ids)):
            node, place = number, offset - 1
            while node >= 0 and (place < 0 or not (runs[node].sampled and runs[node].trained)):
                node, place = runs[node].parent, runs[node].parent_end - 1
            pairs.append(((number, offset), (node, place) if node >= 0 else (-1, -1)))
    return pairs


def tree(seed: int) -> tuple[list[int], list[float]]:
    """Return a forest of long runs with forks: what precedes each element, and a value for each."""
    random = np.random.default_rng(seed)
    previous = [
        n - 1 if n and random.random() < 0.8 else int(random.integers(NOWHERE, max(n, 0)))
        for n in range(40)
    ]
    return previous, random.normal(size=40).tolist()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("factor", [0.0, 0.9, 1.0])
def test_each_element_has_its_value_and_the_mean_of_what_follows(seed: int, factor: float) -> None:
    previous, values = tree(seed)

    def by_definition(n: int) -> float:
        later = [by_definition(m) for m in range(len(previous)) if previous[m] == n]
        return values[n] + factor * (sum(later) / len(later) if later else 0.0)

    sums = accumulated(np.array(previous), np.array(values), factor)
    assert sums == pytest.approx([by_definition(n) for n in range(len(previous))])


@pytest.mark.parametrize("seed", range(5))
def test_what_follows_an_element_is_a_mean_over_its_branches(seed: int) -> None:
    previous, values = tree(seed)
    expected = []
    for n in range(len(previous)):
        later = [values[m] for m in range(len(previous)) if previous[m] == n]
        expected.append(sum(later) / len(later) if later else 0.0)
    assert following(np.array(previous), np.array(values)) == pytest.approx(expected)


def test_nothing_has_no_sums() -> None:
    none = np.zeros(0, np.int64)
    assert len(accumulated(none, np.zeros(0), 1.0)) == 0
