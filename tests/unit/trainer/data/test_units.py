"""Membership: which chains must stay together for a loss that looks at turns or sessions."""

from seamlessflow.trainer.data.chains import Chain, chains
from seamlessflow.trainer.data.units import membership, units
from tests.builders.trainer.trajectories import Run, trajectory


def forked(session: str) -> list[Chain]:
    """Return a session whose first completion is continued from its middle and from its end."""
    runs = [
        Run([1, 2], "prompt"),
        Run([3, 4], turn="t0", parent=0, parent_end=2),
        Run([7], "tool", parent=1, parent_end=2),
        Run([8, 9], turn="t1", parent=2, parent_end=1),
        Run([5, 6], turn="t0", parent=1, parent_end=2),
        Run([10, 11], "prompt"),
        Run([12, 13], turn="t2", parent=5, parent_end=2),
    ]
    return list(chains(trajectory(runs, session), "tiny").chains)


def test_sessions_and_turns_are_numbered_over_all_chains() -> None:
    numbering = membership([*forked("a"), *forked("b")])
    assert numbering.sessions_C.tolist() == [0, 0, 0, 1, 1, 1]
    assert numbering.first_turns_C.tolist() == [0, 0, 0, 3, 3, 3]


def test_chains_that_train_parts_of_one_turn_stay_together() -> None:
    made = [*forked("a"), *forked("b")]
    turns = [set(chain.tokens.turns_T[chain.tokens.trained_T].tolist()) for chain in made[:3]]
    assert turns[0] & turns[1], "the fork divides a completion"
    assert units("turn", made, [0] * 6).tolist() == [0, 0, 1, 2, 2, 3]


def test_a_unit_is_a_chain_a_session_or_a_group() -> None:
    made = [*forked("a"), *forked("b")]
    assert units("token", made, [4] * 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert units("session", made, [4] * 6).tolist() == [0, 0, 0, 1, 1, 1]
    assert units("group", made, [4, 4, 4, 2, 2, 2]).tolist() == [0, 0, 0, 1, 1, 1]


def test_nothing_has_no_units() -> None:
    assert units("turn", [], []).tolist() == []
    assert membership([]).sessions_C.tolist() == []
