"""Trees: shared tokens stand in a row once, and each token is seen from its descendants alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.trainer.data.chains import Chain, chains
from seamlessflow.trainer.data.packing import MicroBatch, pack, tokens_saved
from seamlessflow.trainer.data.trees import prefix_order, tree_bins, tree_row, tree_rows
from seamlessflow.trainer.parallelism import TREE_TOKENS
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.trajectories import Run, trajectory

Chains = list[list[int]]
SOME = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=12)


def row(chains: Chains) -> tuple[list[int], list[list[int]], list[int]]:
    """Return ids of the row, the columns of each chain in its order, and where each ends."""
    order = prefix_order([np.array(ids, np.int32) for ids in chains])
    chosen = order.ordered(np.arange(len(chains)))
    lengths = order.lengths_C[chosen]
    columns, ends = tree_row(lengths, order.shared(chosen))
    ids = np.zeros(len(ends), np.int64)
    ids[columns] = [token for chain in chosen for token in chains[chain]]
    parts = np.split(columns, np.cumsum(lengths)[:-1])
    by_chain = dict(zip(chosen.tolist(), (part.tolist() for part in parts), strict=True))
    return ids.tolist(), [by_chain[chain] for chain in range(len(chains))], ends.tolist()


def behind(prompt: int, length: int) -> Chain:
    """Return a chain of a token and an answer of `length` tokens."""
    answer = Run([7] * length, "policy", "t0", 0, 1, logprobs=[-1.0] * length)
    return chains(trajectory([Run([prompt], "prompt"), answer]), "tiny").chains[0]


def seen(ends: list[int], column: int) -> list[int]:
    return [other for other in range(column + 1) if column < ends[other]]


def test_chains_that_begin_alike_share_their_first_columns() -> None:
    ids, columns, ends = row([[7, 8, 9, 1], [7, 8, 5], [7, 8, 9, 2, 3], [4]])
    assert ids == [4, 7, 8, 5, 9, 1, 2, 3]
    assert columns == [[1, 2, 4, 5], [1, 2, 3], [1, 2, 4, 6, 7], [0]]
    assert ends == [1, 8, 8, 4, 8, 6, 8, 8]


def test_a_chain_that_another_begins_with_adds_nothing() -> None:
    ids, columns, _ = row([[1, 2, 3], [1, 2], [1, 2, 3]])
    assert ids == [1, 2, 3]
    assert columns == [[0, 1, 2], [0, 1], [0, 1, 2]]


@given(SOME)
def test_every_token_sees_the_tokens_before_it_in_its_chain_and_no_other(chains: Chains) -> None:
    ids, columns, ends = row(chains)
    for chain, places in zip(chains, columns, strict=True):
        assert [ids[place] for place in places] == chain
        for length, place in enumerate(places, 1):
            assert seen(ends, place) == places[:length]


@given(SOME)
def test_a_row_has_each_distinct_beginning_once(chains: Chains) -> None:
    ids, _, _ = row(chains)
    beginnings = {tuple(chain[:end]) for chain in chains for end in range(1, len(chain) + 1)}
    assert len(ids) == len(beginnings)


@given(SOME, st.integers(1, 30), st.data())
def test_bins_hold_every_chain_once_with_whole_units_within_the_budget(
    chains: Chains, budget: int, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.integers(0, 4), min_size=len(chains), max_size=len(chains)))
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    order = prefix_order([np.array(ids, np.int32) for ids in chains])
    bins = tree_bins(order, units, budget)
    assert sorted(chain for chosen in bins for chain in chosen.tolist()) == list(range(len(chains)))
    of_bins = [set(units[chosen].tolist()) for chosen in bins]
    assert sum(map(len, of_bins)) == len(set(units.tolist()))
    for chosen, held in zip(bins, of_bins, strict=True):
        assert order.tokens(chosen) <= budget or len(held) == 1


@given(SOME, st.integers(1, 30), st.data())
def test_rows_hold_every_chain_once_and_are_longer_than_the_budget_only_for_one_chain(
    chains: Chains, budget: int, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.integers(0, 4), min_size=len(chains), max_size=len(chains)))
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    order = prefix_order([np.array(ids, np.int32) for ids in chains])
    rows = tree_rows(order, units, budget)
    assert sorted(chain for row in rows for chain in row.tolist()) == list(range(len(chains)))
    assert all(order.tokens(row) <= budget or len(row) == 1 for row in rows)


@pytest.mark.parametrize(("answer", "rows"), [(18, [[0, 1, 2]]), (400, [[0], [1], [2]])])
def test_chains_share_a_row_where_the_tokens_saved_are_more_work_than_the_pairs_added(
    answer: int, rows: list[list[int]]
) -> None:
    group = [np.array([7] * 45 + [last] * answer, np.int32) for last in (1, 2, 3)]
    made = tree_rows(prefix_order(group), np.arange(3), 4096)
    assert [row.tolist() for row in made] == rows


@pytest.mark.parametrize(
    ("longest", "tokens"),
    [
        (0, [640] * 8),  # a tree of two has 680 tokens
        (700, [680] * 4),
        (4096, [920]),
    ],
)
def test_a_long_prompt_is_shared_beyond_the_budget_as_far_as_a_long_chain_has_room(
    longest: int, tokens: list[int]
) -> None:
    group = [np.array([7] * 600 + [last] * 40, np.int32) for last in range(8)]
    order = prefix_order(group)
    made = tree_rows(order, np.arange(8), 650, longest)
    assert [order.tokens(row) for row in made] == tokens


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        (3000, [3000 + 8 * 40]),
        (TREE_TOKENS - 80, [TREE_TOKENS] * 4),  # room for two answers
        (TREE_TOKENS, [TREE_TOKENS + 40] * 8),
    ],
)
def test_a_prompt_of_thousands_of_tokens_is_shared_up_to_the_largest_tree(
    prompt: int, tokens: list[int]
) -> None:
    group = [np.array([7] * prompt + [last] * 40, np.int32) for last in range(8)]
    order = prefix_order(group)
    made = tree_rows(order, np.arange(8), 650, longest=32_768)
    assert [order.tokens(row) for row in made] == tokens


def test_a_tree_beyond_the_budget_has_at_most_twice_the_tokens_of_its_longest_chain() -> None:
    group = [np.array([7] * 10 + [last] * 40, np.int32) for last in range(8)]
    order = prefix_order(group)
    made = tree_rows(order, np.arange(8), 60, 4096)
    assert {order.tokens(row) for row in made} == {90}


@given(SOME, st.integers(1, 30), st.integers(0, 60), st.data())
def test_rows_hold_every_chain_once_whatever_room_a_long_chain_has(
    chains: Chains, budget: int, longest: int, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.integers(0, 4), min_size=len(chains), max_size=len(chains)))
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    order = prefix_order([np.array(ids, np.int32) for ids in chains])
    rows = tree_rows(order, units, budget, longest)
    assert sorted(chain for row in rows for chain in row.tolist()) == list(range(len(chains)))
    for row in rows:
        room = max(budget, min(longest, 2 * int(order.lengths_C[row].max())))
        assert order.tokens(row) <= room or len(row) == 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(8, 100))
def test_chains_that_share_nothing_are_padded(lengths: list[int], budget: int) -> None:
    made = [behind(number, length) for number, length in enumerate(lengths)]
    batches = pack(made, budget, "auto")
    for batch, padded in zip(batches, pack(made, budget, "padded"), strict=True):
        assert batch.ends_BT is None
        assert batch.positions_BT is None
        np.testing.assert_array_equal(batch.ids_BT, padded.ids_BT)
        np.testing.assert_array_equal(batch.chains_N, padded.chains_N)


def test_rows_of_a_micro_batch_are_trees_of_their_own() -> None:
    forked = forked_chains(groups=3)
    (batch,) = pack(forked, 1000, "auto")
    assert batch.ends_BT is not None
    assert batch.ids_BT.shape == batch.ends_BT.shape
    assert len(batch.ids_BT) == 3
    for row in range(3):
        groups = {forked[chain].session_id[2] for chain in batch.chains_N[batch.rows_N == row]}
        assert len(groups) == 1


def test_sessions_of_a_group_come_into_one_micro_batch_though_all_chains_do_not_fit() -> None:
    chains = forked_chains(groups=3)
    groups = np.array([int(chain.session_id.split("-")[1][0]) for chain in chains])
    batches = pack(chains, 100, "tree")
    assert [len(set(groups[batch.chains_N].tolist())) for batch in batches] == [1, 1, 1]


def test_no_group_is_divided_to_fill_a_micro_batch() -> None:
    """Groups of 8 + 2 x 4 tokens behind a first one: two do not fit into 30, one and a half do."""
    chains = [[0, *[group] * 8, *[last] * 4] for group in (1, 2, 3) for last in (4, 5)]
    order = prefix_order([np.array(ids, np.int32) for ids in chains])
    bins = tree_bins(order, np.arange(len(chains)), 30)
    assert sorted(chosen.tolist() for chosen in bins) == [[0, 1], [2, 3], [4, 5]]


def test_the_saved_share_is_that_of_the_tokens_that_are_not_computed() -> None:
    chains = forked_chains()
    batches = pack(chains, 1000, "tree")
    computed = sum(batch.ids_BT.size for batch in batches)
    assert tokens_saved(batches) == {"tokens_saved": 1 - computed / sum(map(len, chains))}
    assert tokens_saved(batches)["tokens_saved"] > 0.5
    assert tokens_saved(pack(chains, 1000, "packed")) == {}


def test_a_trained_token_is_predicted_from_the_column_of_the_token_before_it() -> None:
    (batch,) = pack(forked_chains(), 1000, "tree")
    assert batch.positions_BT is not None
    assert batch.positions_BT[0, batch.columns_N].tolist() == (batch.places_N - 1).tolist()
    column, count = np.unique(batch.columns_N, return_counts=True)
    assert count.max() > 1, "a fork has several targets"
    assert len(column) < len(batch)


@pytest.mark.parametrize("budget", [30, 1000])
def test_the_order_of_chains_does_not_change_what_is_computed(budget: int) -> None:
    chains = forked_chains()

    def rows(batches: list[MicroBatch]) -> list[list[int]]:
        return [batch.ids_BT[0].tolist() for batch in batches]

    assert rows(pack(chains, budget, "tree")) == rows(pack(chains[::-1], budget, "tree"))


def test_a_tree_of_requests_has_the_tokens_of_the_merged_chain() -> None:
    runs = [
        Run([1, 2], "prompt"),
        Run([3, 4], "policy", "t0", 0, 2),
        Run([5], "tool", "t1", 1, 2),
        Run([6, 7], "policy", "t1", 2, 1),
    ]
    (merged,) = chains(trajectory(runs), "tiny").chains
    requests = chains(trajectory(runs), "tiny", chaining="per_request").chains
    assert sum(map(len, requests)) == 4 + len(merged)
    (batch,) = pack(requests, 16, "tree")
    assert batch.ids_BT.tolist() == [merged.tokens.ids_T.tolist()]
