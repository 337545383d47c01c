"""What the fold accepts, what it ignores, and that it forgets neither."""

import pytest

from consumers.trajectories.sessions.session import TurnState
from schemas import records as r
from schemas.records import Record
from tests.builders.trajectories.story import (
    Story,
    closed,
    completed,
    dispatched,
    finalized,
    ids,
    interrupted,
    opened,
    progressed,
    rewarded,
    started,
    told,
)


def test_output_of_the_latest_dispatch_adds_up() -> None:
    story = told(started(), dispatched(), progressed(ids(7)), completed(ids(8), token_offset=1))

    assert story.sampled() == ids(7, 8)
    assert story.turn().state is TurnState.COMPLETED


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
    once = Story().tell(*WHOLE)
    twice = Story().tell(*WHOLE[: number + 1], WHOLE[number], *WHOLE[number + 1 :])

    assert twice.sampled() == once.sampled() == ids(7, 8, 9)
    assert twice.known.rewards == once.known.rewards
    assert twice.accepted.count(True) == once.accepted.count(True) == len(WHOLE)
    assert sum(twice.known.ignored.values()) == 1


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
    story = told(started(), dispatched(), foreign)

    assert story.sampled() == b""
    assert story.turn().running
    assert sum(story.known.ignored.values()) == 1


def test_the_first_dispatch_of_a_number_wins() -> None:
    story = told(started(), dispatched(worker="w"), dispatched(worker="late"))

    assert story.turn().worker == "w"


def test_a_dispatch_that_would_sample_tokens_twice_does_not_count_but_ends_the_one_before() -> None:
    story = told(started(), dispatched(), progressed(ids(7)), dispatched(dispatch=2, worker="v"))

    assert story.accepted[-1] is False
    assert story.turn().worker is None
    assert story.turn().running


def test_what_a_dispatch_sampled_that_did_not_count_is_never_taken_for_another_s() -> None:
    story = told(
        started(),
        dispatched(),
        progressed(ids(7)),
        dispatched(dispatch=2, worker="v", from_offset=0),
        dispatched(dispatch=2, worker="v", from_offset=1),
        progressed(ids(8), dispatch=2, worker="v", token_offset=1),
        dispatched(dispatch=3, worker="v", from_offset=1),
        progressed(ids(9), dispatch=3, worker="v", token_offset=1),
    )

    assert story.sampled() == ids(7, 9)
    assert story.turn().interruptions == 1


def test_after_an_interruption_nobody_samples_until_the_next_dispatch() -> None:
    story = told(started(), dispatched(), interrupted(ids(7)), progressed(ids(8), token_offset=1))

    assert story.turn().worker is None
    assert story.sampled() == ids(7)


def test_a_turn_whose_engine_saw_another_prompt_is_not_confirmed() -> None:
    story = told(started(), dispatched(), completed(ids(7), prompt=ids(1, 3)))

    assert story.turn().state is TurnState.COMPLETED
    assert not story.turn().prompt_confirmed


def test_closing_cuts_what_is_under_way() -> None:
    story = told(started(), dispatched(), progressed(ids(7)), closed(), progressed(ids(8)))

    assert story.turn().state is TurnState.CUT
    assert story.sampled() == ids(7)


def test_a_closed_session_starts_no_turn() -> None:
    story = told(closed(), started())

    assert not story.known.turns


def test_the_highest_revision_of_a_reward_counts() -> None:
    story = told(
        rewarded(1.0, "one", revision=0), rewarded(0.5, "two", revision=1), rewarded(2.0, "two")
    )

    assert [reward.value for reward in story.known.rewards.values()] == [0.5]


def test_versions_are_recorded_where_they_change() -> None:
    def span(start: int, version: int) -> r.VersionSpan:
        return r.VersionSpan(start=start, version_min=version, version_max=version)

    story = told(
        started(),
        dispatched(),
        progressed(ids(7, 8), spans=(span(0, 1),)),
        completed(ids(9, 9), token_offset=2, spans=(span(2, 1), span(3, 2))),
    )

    assert story.known.tree.nodes[story.turn().node].spans == [span(0, 1), span(3, 2)]


def test_a_failure_of_an_older_dispatch_is_ignored() -> None:
    failed = r.TurnFailed(
        session_id="s",
        turn_id="a",
        epoch=None,
        dispatch=1,
        worker="w",
        incarnation="i",
        status=500,
        reason="engine_failed",
        detail="",
        cause="infrastructure",
        at_ms=20,
    )
    story = told(
        started(), dispatched(), interrupted(b""), dispatched(dispatch=2, worker="v"), failed
    )

    assert story.turn().running


def test_a_refused_command_is_known() -> None:
    refused = r.CommandRefused(
        session_id="s", epoch=1, at_ms=10, command_id="c", status=404, reason="", detail=""
    )

    assert "c" in told(refused).known.commands


@pytest.mark.parametrize(("parent_node", "parent_end"), [(-2, 0), (0, 3), (2, 0)])
def test_a_turn_behind_a_place_that_is_not_in_the_tree_is_ignored(
    parent_node: int, parent_end: int
) -> None:
    story = told(
        started("a", ids(1, 2)), started("b", parent_node=parent_node, parent_end=parent_end)
    )

    assert list(story.known.turns) == ["a"]
    assert len(story.known.tree.nodes) == 2
