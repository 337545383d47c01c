"""Sample texts: which sessions of a step are shown, and where their prompt ends."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.metrics.trackers import SampleText, sample_texts
from tests.builders.trainer.groups import group


def spelt(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


def batch(*rewards: Sequence[float]) -> Batch:
    groups = (group(f"g{number}", *group_rewards) for number, group_rewards in enumerate(rewards))
    return Batch(0, tuple(Prepared(made, ()) for made in groups))


def shown(step_batch: Batch, count: int) -> list[tuple[str, float]]:
    return [(row.session, row.reward) for row in sample_texts(step_batch, count, spelt)]


def test_of_each_group_the_worst_and_the_best_session_are_shown() -> None:
    assert shown(batch([0.5, 0.0, 1.0], [0.25]), 8) == [
        ("g0.1.0", 0.0),
        ("g0.2.0", 1.0),
        ("g1.0.0", 0.25),
    ]


def test_no_more_rows_than_asked_for_are_made() -> None:
    assert shown(batch([0.0, 1.0], [0.0, 1.0]), 3) == [
        ("g0.0.0", 0.0),
        ("g0.1.0", 1.0),
        ("g1.0.0", 0.0),
    ]


def test_the_prompt_ends_before_the_first_trained_token() -> None:
    made = group("g", 1.0)
    (session,) = made.sessions
    (chain,) = session.chains
    ids_T, trained_T = np.arange(len(chain), dtype=np.int32), np.zeros(len(chain), np.bool_)
    trained_T[2:] = True
    tokens = replace(chain.tokens, ids_T=ids_T, trained_T=trained_T)
    changed = replace(session, chains=(Chain(chain.session_id, chain.turns, tokens),))
    step_batch = Batch(0, (Prepared(replace(made, sessions=(changed,)), ()),))

    (row,) = sample_texts(step_batch, 1, spelt)
    rest = spelt(range(2, len(chain)))
    assert row == SampleText(session.source.group_id, session.source.session_id, 1.0, "0 1", rest)


def test_a_session_without_a_chain_is_left_out() -> None:
    made = group("g", 1.0)
    empty = replace(made, sessions=(replace(made.sessions[0], chains=()),))

    assert sample_texts(Batch(0, (Prepared(empty, ()),)), 1, spelt) == []
