"""Chains: every trainable token of a tree in exactly one sequence, with where it came from."""

from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.schemas.records import Trajectory, VersionSpan
from seamlessflow.trainer.credit import Chaining
from seamlessflow.trainer.data.chains import Chain, TrajectoryMalformed, chains, forks, without
from tests.builders.trainer.trajectories import Run, trajectory


def two_turns() -> Trajectory:
    return trajectory(
        [
            Run([1, 2], origin="prompt", turn="a"),
            Run([3, 4], turn="a", parent=0, parent_end=2, versions=[5, 6]),
            Run([7], origin="tool", turn="b", parent=1, parent_end=2),
            Run([8, 9], turn="b", parent=2, parent_end=1, versions=[6, 6], logprobs=[-1, -2]),
            Run([2], origin="prompt", turn="c", parent=3, parent_end=2),
        ]
    )


def test_a_straight_session_is_one_chain_up_to_its_last_trained_token() -> None:
    (chain,) = chains(two_turns(), "tiny").chains
    assert chain.tokens.ids_T.tolist() == [1, 2, 3, 4, 7, 8, 9]
    assert chain.tokens.trained_T.tolist() == [False, False, True, True, False, True, True]


def test_a_trained_token_carries_where_it_came_from() -> None:
    (chain,) = chains(two_turns(), "tiny").chains
    tokens = chain.tokens
    assert chain.turns == ("a", "b")
    assert tokens.turns_T.tolist() == [-1, -1, 0, 0, -1, 1, 1]
    assert tokens.offsets_T.tolist() == [-1, -1, 0, 1, -1, 0, 1]
    assert tokens.versions_T.tolist() == [-1, -1, 5, 6, -1, 6, 6]
    assert tokens.logprobs_T[-2:].tolist() == [-1, -2]


def fork() -> Trajectory:
    """Turn b continues behind the first token of turn a's answer, turn c behind all of it."""
    return trajectory(
        [
            Run([1], origin="prompt", turn="a"),
            Run([2, 3, 4], turn="a", parent=0, parent_end=1),
            Run([5], origin="prompt", turn="b", parent=1, parent_end=1),
            Run([6], turn="b", parent=2, parent_end=1),
            Run([7], turn="c", parent=1, parent_end=3),
        ]
    )


def test_a_token_that_branches_share_is_trained_in_the_first_of_them() -> None:
    """Holds invariant I6."""
    first, second = chains(fork(), "tiny").chains
    assert first.tokens.ids_T.tolist() == [1, 2, 5, 6]
    assert first.tokens.trained_T.tolist() == [False, True, False, True]
    assert second.tokens.ids_T.tolist() == [1, 2, 3, 4, 7]
    assert second.tokens.trained_T.tolist() == [False, False, True, True, True]


def test_the_rest_of_a_node_behind_its_last_branch_is_a_chain_of_its_own() -> None:
    tree = trajectory(
        [
            Run([1], origin="prompt"),
            Run([2, 3], parent=0, parent_end=1),
            Run([4], turn="b", parent=1, parent_end=1),
        ]
    )
    assert [chain.tokens.ids_T.tolist() for chain in chains(tree, "tiny").chains] == [
        [1, 2, 3],
        [1, 2, 4],
    ]
    assert [chain.trained() for chain in chains(tree, "tiny").chains] == [2, 1]


def test_a_second_root_is_a_chain_of_its_own() -> None:
    tree = trajectory(
        [
            Run([1], origin="prompt"),
            Run([2], parent=0, parent_end=1),
            Run([5], origin="prompt", turn="b"),
            Run([6], turn="b", parent=2, parent_end=1),
        ]
    )
    assert [chain.tokens.ids_T.tolist() for chain in chains(tree, "tiny").chains] == [
        [1, 2],
        [5, 6],
    ]


def test_a_branch_with_nothing_to_train_is_left_out() -> None:
    assert chains(trajectory([Run([1, 2], origin="prompt")]), "tiny").chains == ()


def test_per_request_each_completion_is_a_chain_behind_its_own_prompt() -> None:
    first, second = chains(two_turns(), "tiny", chaining="per_request").chains
    assert first.tokens.ids_T.tolist() == [1, 2, 3, 4]
    assert first.tokens.trained_T.tolist() == [False, False, True, True]
    assert second.tokens.ids_T.tolist() == [1, 2, 3, 4, 7, 8, 9]
    assert second.tokens.trained_T.tolist() == [False] * 5 + [True, True]


def test_per_request_a_fork_within_a_completion_divides_no_chain() -> None:
    first, *others = chains(fork(), "tiny", chaining="per_request").chains
    assert first.tokens.ids_T.tolist() == [1, 2, 3, 4]
    assert first.tokens.trained_T.tolist() == [False, True, True, True]
    assert [chain.tokens.ids_T.tolist() for chain in others] == [[1, 2, 5, 6], [1, 2, 3, 4, 7]]
    assert [chain.trained() for chain in others] == [1, 1]


@pytest.mark.parametrize("chaining", get_args(Chaining))
@pytest.mark.parametrize(("made", "forked"), [(two_turns(), False), (fork(), True)])
def test_a_session_forks_if_a_chain_does_not_continue_the_one_before(
    made: Trajectory, forked: bool, chaining: Chaining
) -> None:
    assert forks(chains(made, "tiny", chaining=chaining).chains, chaining) is forked


def test_masked_tokens_are_not_trained() -> None:
    runs = [Run([1], origin="prompt"), Run([2, 3], parent=0, parent_end=1, trained=False)]
    tree = replace(trajectory(runs), masked_tokens={"inexact": 2})
    assert chains(tree, "tiny").chains == ()
    assert chains(tree, "tiny").masked == {"inexact": 2}


def test_what_another_policy_sampled_is_not_trained_and_counted() -> None:
    runs = [Run([1], origin="prompt"), Run([2, 3], parent=0, parent_end=1, policy="judge")]
    result = chains(trajectory(runs), "tiny")
    assert (result.chains, result.masked) == ((), {"other_policy": 2})


def test_tokens_of_an_inexact_version_are_masked_and_counted() -> None:
    runs = [Run([1], origin="prompt"), Run([2, 3, 4], parent=0, parent_end=1)]
    spans = (
        VersionSpan(start=1, version_min=4, version_max=4),
        VersionSpan(start=2, version_min=4, version_max=5),
        VersionSpan(start=3, version_min=5, version_max=5),
    )
    result = chains(replace(trajectory(runs), spans=spans), "tiny")
    assert result.chains[0].tokens.trained_T.tolist() == [False, True, False, True]
    assert result.masked == {"inexact_version": 1}


def test_a_first_token_is_masked_because_nothing_predicts_it() -> None:
    result = chains(trajectory([Run([1, 2])]), "tiny")
    assert result.chains[0].tokens.trained_T.tolist() == [False, True]
    assert result.masked == {"no_prefix": 1}


def test_a_turn_sampled_in_two_nodes_counts_its_offsets_on() -> None:
    runs = [
        Run([1], origin="prompt"),
        Run([2, 3], parent=0, parent_end=1),
        Run([4], parent=1, parent_end=2),
    ]
    (chain,) = chains(trajectory(runs), "tiny").chains
    assert chain.tokens.offsets_T.tolist() == [-1, 0, 1, 2]


def test_masking_more_tokens_shortens_the_chain_or_removes_it() -> None:
    (chain,) = chains(two_turns(), "tiny").chains
    shorter = without(chain, chain.tokens.turns_T == 1)
    assert shorter is not None and shorter.tokens.ids_T.tolist() == [1, 2, 3, 4]
    assert without(chain, np.ones(len(chain), np.bool_)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"loss_mask": b"\1"},
        {"logprobs": b""},
        {"nodes": two_turns().nodes[::-1]},
        {"nodes": (replace(two_turns().nodes[0], length=99),)},
        {"nodes": (replace(two_turns().nodes[0], parent=0),)},
    ],
)
def test_a_trajectory_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(TrajectoryMalformed):
        chains(replace(two_turns(), **change), "tiny")  # type: ignore[arg-type]


@st.composite
def trees(draw: st.DrawFn) -> list[Run]:
    runs: list[Run] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.integers(-1, number - 1))
        end = 0 if parent < 0 else draw(st.integers(0, len(runs[parent].ids)))
        origin = draw(st.sampled_from(["prompt", "policy"]))
        ids = range(10 * number, 10 * number + draw(st.integers(0, 4)))
        runs.append(Run(ids, origin, f"t{number}", parent, end, draw(st.booleans())))
    return runs


def provenance(chain: Chain) -> list[tuple[str, int]]:
    trained = chain.tokens.trained_T
    turns, offsets = chain.tokens.turns_T[trained], chain.tokens.offsets_T[trained]
    return [
        (chain.turns[turn], offset)
        for turn, offset in zip(turns.tolist(), offsets.tolist(), strict=True)
    ]


@given(trees(), st.sampled_from(get_args(Chaining)))
def test_each_trainable_token_of_any_tree_is_trained_once_or_counted(
    runs: list[Run], chaining: Chaining
) -> None:
    """Holds invariant I6."""
    result = chains(trajectory(runs), "tiny", chaining=chaining)
    times = Counter(token for chain in result.chains for token in provenance(chain))
    trainable = {
        (run.turn, offset)
        for run in runs
        if run.origin == "policy" and run.trained
        for offset in range(len(run.ids))
    }
    assert set(times) <= trainable
    assert set(times.values()) <= {1}
    assert len(trainable) - len(times) == result.masked.get("no_prefix", 0)


def before(runs: list[Run], number: int) -> list[int]:
    """Return the tokens before a node, walked from the node to its root."""
    run = runs[number]
    if run.parent < 0:
        return []
    return [*before(runs, run.parent), *list(runs[run.parent].ids)[: run.parent_end]]


@given(trees())
def test_per_request_a_chain_has_the_tokens_before_a_completion_and_trains_it_alone(
    runs: list[Run],
) -> None:
    wanted = [
        ([*(prompt := before(runs, number)), *run.ids], max(len(prompt), 1))
        for number, run in enumerate(runs)
        if run.origin == "policy" and run.trained
    ]
    made = chains(trajectory(runs), "tiny", chaining="per_request").chains
    assert [
        (chain.tokens.ids_T.tolist(), int(chain.tokens.trained_T.argmax())) for chain in made
    ] == [(ids, first) for ids, first in wanted if len(ids) > first]
    for chain in made:
        trained = chain.tokens.trained_T
        assert trained[trained.argmax() :].all()


@given(trees())
def test_per_request_trains_and_counts_the_tokens_of_merged_chains(runs: list[Run]) -> None:
    made = trajectory(runs)
    merged, requests = (chains(made, "tiny", chaining=each) for each in get_args(Chaining))
    assert requests.masked == merged.masked
    assert trained_once(requests.chains) == trained_once(merged.chains)


def trained_once(of_session: tuple[Chain, ...]) -> list[tuple[str, int]]:
    return sorted(token for chain in of_session for token in provenance(chain))
