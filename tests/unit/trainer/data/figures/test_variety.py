"""Variety of a batch: equal and divided sessions, a group that dominates."""

from dataclasses import replace

import pytest

from seamlessflow.trainer.data.batch import Prepared
from seamlessflow.trainer.data.figures.variety import variety
from tests.builders.trainer.groups import group, two_groups


def test_sessions_with_the_same_tokens_are_equal() -> None:
    made = group("g", 0.0, 1.0, 0.0)
    first, second, third = made.sessions
    (chain,) = second.chains
    ids_T = chain.tokens.ids_T.copy()
    ids_T[chain.tokens.trained_T] += 1
    other = replace(second, chains=(replace(chain, tokens=replace(chain.tokens, ids_T=ids_T)),))
    sessions = replace(made, sessions=(first, other, third))
    chains = tuple(chain for one in sessions.sessions for chain in one.chains)
    found = variety([Prepared(sessions, chains)])
    assert found["equal_share"] == pytest.approx(2 / 3)
    assert found["divided_share"] == 0
    assert found["largest_group_share"] == 1


def test_a_group_dominates_by_its_trained_tokens() -> None:
    one, other = (
        Prepared(made, tuple(chain for of in made.sessions for chain in of.chains))
        for made in (group("g", 0.0, 1.0, length=3), group("h", 0.0, 1.0, length=9))
    )
    assert variety([one, other])["largest_group_share"] == pytest.approx(0.75)
    assert variety([replace(one, chains=()), replace(other, chains=())])["largest_group_share"] == 0


def test_nothing_is_told_of_no_session() -> None:
    assert variety([]) == {}


def test_a_session_of_several_chains_is_divided() -> None:
    (one, _) = two_groups()
    sessions = (
        tuple(replace(session, chains=one.chains[:2]) for session in one.group.sessions[:1])
        + one.group.sessions[1:2]
    )
    found = variety([Prepared(replace(one.group, sessions=sessions), one.chains)])
    assert found["divided_share"] == 0.5
