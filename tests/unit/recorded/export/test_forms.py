"""Chains of an export: each sampled token once, trained or not."""

from dataclasses import replace

from seamlessflow.recorded.export.forms import sampled_chains
from tests.builders.trainer.trajectories import Run, trajectory

FORKED = (
    Run([1, 2], origin="prompt"),
    Run([10, 11], turn="t0", parent=0, parent_end=2, versions=(3, 4)),
    Run([20], origin="prompt", turn="t1", parent=1, parent_end=2),
    Run([12], turn="t1", parent=2, parent_end=1, trained=False),
    Run([30], origin="prompt", turn="t2", parent=1, parent_end=2),
    Run([13], turn="t2", parent=4, parent_end=1, policy="other"),
)


def test_a_shared_turn_stands_in_the_first_chain_alone() -> None:
    first, second = sampled_chains(trajectory(FORKED))
    assert first.chain.tokens.ids_T.tolist() == [1, 2, 10, 11, 20, 12]
    assert first.sampled_T.tolist() == [False, False, True, True, False, True]
    assert first.trained_T.tolist() == [False, False, True, True, False, False]
    assert first.versions_T.tolist() == [-1, -1, 3, 4, -1, 0]
    assert second.chain.tokens.ids_T.tolist() == [1, 2, 10, 11, 30, 13]
    assert second.sampled_T.tolist() == [False] * 5 + [True]
    assert (first.policy, second.policy) == ("tiny", "other")


def test_a_token_of_an_unknown_version_is_in_a_chain_and_not_trained() -> None:
    made = trajectory([Run([1], origin="prompt"), Run([10], parent=0, parent_end=1)])
    (span,) = made.spans
    made = replace(made, spans=(replace(span, version_max=5),), loss_mask=bytes(2))
    (chain,) = sampled_chains(made)
    assert chain.sampled_T.tolist() == [False, True]
    assert not chain.trained_T.any()
    assert chain.versions_T.tolist() == [-1, -1]


def test_a_session_without_samples_has_no_chain() -> None:
    assert list(sampled_chains(trajectory([Run([1], origin="prompt")]))) == []
    assert list(sampled_chains(trajectory([]))) == []
