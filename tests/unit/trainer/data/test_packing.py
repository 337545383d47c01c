"""Packing loses no token, keeps its budget, and knows where each trained token came from."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.trainer.data.chains import Chain, chains
from seamlessflow.trainer.data.packing import Layout, MicroBatch, empty, pack, shard
from seamlessflow.trainer.data.units import units
from tests.builders.trainer.chains import with_advantages
from tests.builders.trainer.trajectories import Run, trajectory

LAYOUTS = get_args(Layout)


def chain(length: int, first: int = 0) -> Chain:
    """A prompt token and `length` - 1 sampled ones, ids counting up from `first`."""
    ids = range(first, first + length)
    runs = [Run(ids[:1], origin="prompt"), Run(ids[1:], parent=0, parent_end=1)]
    return chains(trajectory(runs), "tiny").chains[0]


def session_chain(session: str, length: int) -> Chain:
    return replace(chain(length), session_id=session)


def trained(batches: list[MicroBatch]) -> dict[tuple[int, int], tuple[int, float]]:
    return {
        (number, place): (target, advantage)
        for batch in batches
        for number, place, target, advantage in zip(
            batch.chains_N.tolist(),
            batch.places_N.tolist(),
            batch.targets_N.tolist(),
            batch.advantages_N.tolist(),
            strict=True,
        )
    }


@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=30),
    st.integers(8, 100),
    st.sampled_from(LAYOUTS),
)
def test_every_trained_token_is_packed_once_within_the_budget(
    lengths: list[int], budget: int, layout: Layout
) -> None:
    made = [chain(length, 100 * number) for number, length in enumerate(lengths)]
    batches = pack(with_advantages(made, range(len(made))), budget, layout)
    assert all(batch.ids_BT.size <= max(budget, *lengths) for batch in batches)
    assert sum(len(batch) for batch in batches) == sum(length - 1 for length in lengths)
    packed = [length for batch in batches for length in batch.lengths_C.tolist()]
    assert sorted(packed) == sorted(lengths)
    assert trained(batches) == {
        (number, place): (100 * number + place, float(number))
        for number, length in enumerate(lengths)
        for place in range(1, length)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trained_token_is_predicted_from_the_column_before_it(layout: Layout) -> None:
    for batch in pack([chain(5), chain(3, 50)], 64, layout):
        following = batch.ids_BT[batch.rows_N, batch.columns_N + 1]
        assert following.tolist() == batch.targets_N.tolist()


def test_packed_chains_count_their_positions_from_zero() -> None:
    (batch,) = pack([chain(3), chain(2, 50)], 64, "packed")
    assert batch.ids_BT.tolist() == [[0, 1, 2, 50, 51]]
    assert batch.positions_BT is not None
    assert batch.positions_BT.tolist() == [[0, 1, 2, 0, 1]]


def test_padded_chains_lie_in_rows_with_padding_behind() -> None:
    (batch,) = pack([chain(3), chain(2, 50)], 64, "padded", padding_id=9)
    assert batch.ids_BT.tolist() == [[0, 1, 2], [50, 51, 9]]
    assert batch.positions_BT is None


def test_a_chain_longer_than_the_budget_has_a_micro_batch_to_itself() -> None:
    for layout in LAYOUTS:
        sizes = [b.ids_BT.size for b in pack([chain(20), chain(4)], 8, layout)]
        assert sizes == [20, 4]


def test_packing_leaves_few_places_free() -> None:
    random = np.random.default_rng(0)
    made = [chain(int(length)) for length in random.integers(2, 500, 400)]
    total = sum(len(sequence) for sequence in made)
    batches = pack(made, 2048, "packed")
    assert len(batches) <= 1.02 * total / 2048 + 1


def test_nothing_packs_to_nothing() -> None:
    assert pack([], 64, "padded") == []


def test_ranks_get_equally_many_micro_batches_and_every_token_once() -> None:
    made = [chain(length) for length in (30, 20, 10, 9, 8)]
    batches = pack(made, 30, "packed")
    ranks = shard(batches, 2)
    assert len(ranks[0]) == len(ranks[1])
    assert trained(ranks[0] + ranks[1]) == trained(batches)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_turns_and_sessions_have_the_same_numbers_however_chains_are_packed(layout: Layout) -> None:
    made = [session_chain(name, length) for name, length in (("a", 9), ("b", 3), ("a", 4))]
    for budget in (4, 100):
        numbers = {
            (chain, session, turn)
            for batch in pack(made, budget, layout)
            for chain, session, turn in zip(
                batch.chains_N.tolist(),
                batch.sessions_N.tolist(),
                batch.turns_N.tolist(),
                strict=True,
            )
        }
        assert numbers == {(0, 0, 0), (1, 1, 1), (2, 0, 0)}


def test_the_loss_is_a_mean_over_tokens_unless_chains_have_weights() -> None:
    made = [chain(3), chain(5)]
    (batch,) = pack(made, 64, "packed")
    assert batch.weights_N.tolist() == pytest.approx([1 / 6] * 6)
    (batch,) = pack(made, 64, "packed", weights_C=np.array([0.5, 0.25]))
    assert batch.weights_N[np.argsort(batch.chains_N)].tolist() == [0.5] * 2 + [0.25] * 4


@given(
    st.lists(st.tuples(st.integers(2, 40), st.integers(0, 8)), min_size=1, max_size=30),
    st.integers(8, 100),
    st.sampled_from(LAYOUTS),
)
def test_units_stay_whole_and_only_a_larger_one_exceeds_the_budget(
    sizes: list[tuple[int, int]], budget: int, layout: Layout
) -> None:
    made = [session_chain(str(session), length) for length, session in sizes]
    units_C = units("session", made, [0] * len(made))
    batches = pack(made, budget, layout, units_C=units_C)
    held = [set(batch.sessions_N.tolist()) for batch in batches]
    assert sum(map(len, held)) == len({session for _, session in sizes})
    assert all(
        batch.ids_BT.size <= budget or len(sessions) == 1
        for batch, sessions in zip(batches, held, strict=True)
    )
    assert sum(len(batch) for batch in batches) == sum(length - 1 for length, _ in sizes)


def test_an_empty_micro_batch_trains_nothing() -> None:
    assert len(empty()) == 0
    assert shard([], 3) == [[], [], []]
