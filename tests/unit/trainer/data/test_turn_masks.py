"""Masks of turns: their formula by hand, and what becomes of tokens that leave the loss."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.phase import batch_facts
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.methods import MethodFailed
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.data.turn_masks import high_entropy_turns, masked_batch
from tests.builders.trainer.groups import NOW, RULES, group


def session(*turns: list[float]) -> Episode:
    """Return a session with these entropies of the tokens of each turn."""
    turns_N = np.repeat(np.arange(len(turns), dtype=np.int32), [len(turn) for turn in turns])
    entropies_N = np.array([value for turn in turns for value in turn])
    columns = {Column.ENTROPY: entropies_N}
    return Episode(1.0, np.zeros(len(turns)), turns_N, lambda: np.arange(len(turns_N)) - 1, columns)


def test_turns_below_the_quantile_of_the_groups_mean_entropies_leave() -> None:
    # Means 1, 4, 2, 3 and 5: the quantile of 0.4 is 2.6, of 0.2 it is 1.8.
    episodes = [session([0.0, 2.0], [4.0]), session([2.0], [3.0, 3.0], [5.0])]
    kept = high_entropy_turns(episodes, keep=0.6)
    assert [of_session.tolist() for of_session in kept] == [
        [False, False, True],
        [False, True, True, True],
    ]
    kept = high_entropy_turns(episodes)
    assert [of_session.tolist() for of_session in kept] == [[False, False, True], [True] * 4]
    assert all(of_session.all() for of_session in high_entropy_turns(episodes, keep=1.0))


def test_sessions_without_a_trained_token_are_no_part_of_it() -> None:
    silent, other = high_entropy_turns([session(), session([1.0])])
    assert (silent.tolist(), other.tolist()) == ([], [True])
    assert [kept.tolist() for kept in high_entropy_turns([session()])] == [[]]


def annotated(*returns: float) -> Batch:
    """Return a batch of one group whose tokens have entropies that grow along each chain."""

    def with_entropy(chain: Chain) -> Chain:
        entropies_N = np.arange(chain.trained(), dtype=np.float32)
        return replace(chain, columns={Column.ENTROPY: entropies_N})

    made = prepare(group("g", *returns), NOW, RULES)
    return Batch(3, (replace(made, chains=tuple(map(with_entropy, made.chains))),))


def first_token_alone(episodes: list[Episode]) -> list[np.ndarray]:
    return [np.arange(len(of_session)) < 1 for of_session in episodes]


def nothing(episodes: list[Episode]) -> list[np.ndarray]:
    return [np.zeros(len(of_session), bool) for of_session in episodes]


def too_few(episodes: list[Episode]) -> list[np.ndarray]:
    return first_token_alone(episodes[:1])


def test_tokens_that_leave_are_counted_and_their_columns_leave_with_them() -> None:
    before = annotated(1.0, 0.0)
    name = f"{__name__}:first_token_alone"
    after = masked_batch(before, {name: {}})
    lost = before.trained() - 2
    assert [chain.trained() for chain in after.chains()] == [1, 1]
    assert [chain.columns[Column.ENTROPY].tolist() for chain in after.chains()] == [[0.0]] * 2
    masked = after.groups[0].masked() - before.groups[0].masked()
    assert masked == Counter({name: lost})
    assert after.trained_tokens() == dict.fromkeys(before.trained_tokens(), 1)
    assert sum(map(len, pack(after.chains(), 64, "padded"))) == 2


def test_the_metrics_of_a_step_follow_what_is_trained() -> None:
    before = annotated(1.0, 0.0)
    name = f"{__name__}:first_token_alone"
    figures = facts(before, NOW) | batch_facts(masked_batch(before, {name: {}}))
    assert figures["tokens_trained"] == 2
    assert figures["tokens_masked"] == before.trained() - 2
    assert figures[f"masked/{name}"] == before.trained() - 2
    assert batch_facts(before) == {}


def test_a_group_of_which_nothing_is_left_trains_nothing() -> None:
    before = annotated(1.0, 0.0)
    after = masked_batch(before, {f"{__name__}:nothing": {}})
    assert after.chains() == []
    assert len(after.groups) == 1


def test_a_mask_that_fails_is_named() -> None:
    with pytest.raises(MethodFailed, match=r"mask .*:too_few failed: .* masks of 1 sessions, not"):
        masked_batch(annotated(1.0, 0.0), {f"{__name__}:too_few": {}})
    with pytest.raises(MethodFailed, match="keep is the share of turns that stay"):
        masked_batch(annotated(1.0, 0.0), {"high_entropy_turns": {"keep": 0.0}})
