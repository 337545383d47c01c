"""Events that the fold accepts, and events that it counts and ignores."""

import pytest

from seamlessflow.consumers.trajectories.sessions.session import TurnState
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    failed,
    finalized,
    interrupted,
    opened,
    progressed,
    refused,
    rewarded,
    started,
)
from tests.builders.trajectories.session_builder import SessionBuilder, session_after


def test_output_of_the_latest_dispatch_adds_up() -> None:
    built = session_after(
        started(), dispatched(), progressed(ids(7)), completed(ids(8), token_offset=1)
    )

    assert built.sampled() == ids(7, 8)
    assert built.turn().state is TurnState.COMPLETED


WHOLE: tuple[Record, ...] = (
    opened(),
    started(),
    dispatched(),
    progressed(ids(7)),
    interrupted(ids(8), token_offset=1),
    dispatched(dispatch=2, from_offset=2, worker="v"),
    completed(ids(9), token_offset=2, dispatch=2, worker="v"),
    rewarded(),
    closed(),
    finalized(),
)


@pytest.mark.parametrize("number", range(len(WHOLE)))
def test_an_event_told_twice_counts_once(number: int) -> None:
    """Holds invariant I4."""
    once = SessionBuilder().apply(*WHOLE)
    twice = SessionBuilder().apply(*WHOLE[: number + 1], WHOLE[number], *WHOLE[number + 1 :])

    assert twice.sampled() == once.sampled() == ids(7, 8, 9)
    assert twice.session.rewards == once.session.rewards
    assert twice.accepted.count(True) == once.accepted.count(True) == len(WHOLE)
    assert sum(twice.session.ignored.values()) == 1


@pytest.mark.parametrize(
    "foreign",
    [
        progressed(ids(9), dispatch=2),
        progressed(ids(9), worker="other"),
        progressed(ids(9), incarnation="older"),
        progressed(ids(9), token_offset=1),
        completed(ids(9), turn_id="unknown"),
        progressed(ids(9), logprobs=b""),
        progressed(b"no", logprobs=b"no"),
    ],
)
def test_output_of_anything_else_is_counted_and_ignored(foreign: Record) -> None:
    """Holds invariant I5."""
    built = session_after(started(), dispatched(), foreign)

    assert built.sampled() == b""
    assert built.turn().running
    assert sum(built.session.ignored.values()) == 1


def test_the_first_dispatch_of_a_number_wins() -> None:
    built = session_after(started(), dispatched(worker="w"), dispatched(worker="late"))

    assert built.turn().worker == "w"


def test_a_dispatch_that_would_sample_tokens_twice_does_not_count_but_ends_the_one_before() -> None:
    built = session_after(
        started(), dispatched(), progressed(ids(7)), dispatched(dispatch=2, worker="v")
    )

    assert built.accepted[-1] is False
    assert built.turn().worker is None
    assert built.turn().running


def test_what_a_dispatch_sampled_that_did_not_count_is_never_taken_for_another_s() -> None:
    built = session_after(
        started(),
        dispatched(),
        progressed(ids(7)),
        dispatched(dispatch=2, worker="v", from_offset=0),
        dispatched(dispatch=2, worker="v", from_offset=1),
        progressed(ids(8), dispatch=2, worker="v", token_offset=1),
        dispatched(dispatch=3, worker="v", from_offset=1),
        progressed(ids(9), dispatch=3, worker="v", token_offset=1),
    )

    assert built.sampled() == ids(7, 9)
    assert built.turn().interruptions == 1


def test_after_an_interruption_nobody_samples_until_the_next_dispatch() -> None:
    built = session_after(
        started(), dispatched(), interrupted(ids(7)), progressed(ids(8), token_offset=1)
    )

    assert built.turn().worker is None
    assert built.sampled() == ids(7)


def test_a_turn_whose_engine_saw_another_prompt_is_not_confirmed() -> None:
    """Holds invariant I2."""
    built = session_after(started(), dispatched(), completed(ids(7), prompt=ids(1, 3)))

    assert built.turn().state is TurnState.COMPLETED
    assert not built.turn().prompt_confirmed


def test_closing_cuts_what_is_under_way() -> None:
    built = session_after(started(), dispatched(), progressed(ids(7)), closed(), progressed(ids(8)))

    assert built.turn().state is TurnState.CUT
    assert built.sampled() == ids(7)


def test_a_closed_session_starts_no_turn() -> None:
    built = session_after(closed(), started())

    assert not built.session.turns


def test_the_highest_revision_of_a_reward_counts() -> None:
    built = session_after(
        rewarded(r.Reward(value=1.0, revision=0), command_id="one"),
        rewarded(r.Reward(value=0.5, revision=1), command_id="two"),
        rewarded(2.0, command_id="two"),
    )

    assert [reward.value for reward in built.session.rewards.values()] == [0.5]


def test_versions_are_recorded_where_they_change() -> None:
    def span(start: int, version: int) -> r.VersionSpan:
        return r.VersionSpan(start=start, version_min=version, version_max=version)

    built = session_after(
        started(),
        dispatched(),
        progressed(ids(7, 8), spans=(span(0, 1),)),
        completed(ids(9, 9), token_offset=2, spans=(span(2, 1), span(3, 2))),
    )

    assert built.session.tree.nodes[built.turn().node].spans == [span(0, 1), span(3, 2)]


def test_a_failure_of_an_older_dispatch_is_ignored() -> None:
    late = failed(epoch=None, dispatch=1, worker="w", incarnation="i", at_ms=20)
    built = session_after(
        started(), dispatched(), interrupted(b""), dispatched(dispatch=2, worker="v"), late
    )

    assert built.turn().running


def test_a_refused_command_is_known() -> None:
    assert "c" in session_after(refused()).session.commands


@pytest.mark.parametrize(("parent_node", "parent_end"), [(-2, 0), (0, 3), (2, 0)])
def test_a_turn_behind_a_place_that_is_not_in_the_tree_is_ignored(
    parent_node: int, parent_end: int
) -> None:
    built = session_after(
        started("a", ids(1, 2)), started("b", parent_node=parent_node, parent_end=parent_end)
    )

    assert list(built.session.turns) == ["a"]
    assert len(built.session.tree.nodes) == 2
