"""Trajectories: their tokens, and those of them that may be trained."""

from typing import Any

import pytest

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.session import MANAGER_FAILED
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Reward, VersionSpan
from seamlessflow.trainer.data.chains import chains
from tests.builders.records.content import ids, logprobs
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    finalized,
    interrupted,
    opened,
    progressed,
    rewarded,
    started,
)
from tests.builders.trajectories.session_builder import SessionBuilder, finished, session_after

TURN: dict[str, Any] = {"scope": "turn", "turn_id": "a"}


def two_turns() -> SessionBuilder:
    return session_after(
        started("a", ids(1, 2)),
        dispatched("a"),
        completed(ids(7, 8), "a", ids(1, 2)),
        started("b", ids(3), parent_node=1, parent_end=2, prompt_length=5),
        dispatched("b"),
        completed(ids(9), "b", b"", prompt_hash=started("b", ids(3)).prompt_hash, prompt_length=5),
    )


def test_tokens_lie_one_behind_the_other_in_node_order() -> None:
    made = finished(two_turns())

    assert made.tokens == ids(1, 2, 7, 8, 3, 9)
    assert made.loss_mask == bytes([0, 0, 1, 1, 0, 1])
    assert made.logprobs == bytes(8) + logprobs(2) + bytes(4) + logprobs(1)
    assert [(n.node_id, n.parent, n.parent_end, n.start, n.length) for n in made.nodes] == [
        (0, -1, 0, 0, 2),
        (1, 0, 2, 2, 2),
        (2, 1, 2, 4, 1),
        (3, 2, 1, 5, 1),
    ]


def test_the_same_log_gives_the_same_bytes() -> None:
    """Holds invariant I7."""
    assert encode(finished(two_turns())) == encode(finished(two_turns()))


def test_the_session_s_group_and_offsets_travel_along() -> None:
    made = finished(two_turns())

    assert (made.group_id, made.partition, made.first_offset, made.last_offset) == (
        "s",
        5,
        100,
        109,
    )


@pytest.mark.parametrize(
    ("started_with", "completed_with", "reason"),
    [
        ({"behavior_exact": False, "inexact_reason": "greedy"}, {}, "inexact_greedy"),
        ({}, {"prompt_length": 9}, "prompt_mismatch"),
        ({"behavior_exact": False, "train_inexact": True}, {}, ""),
        ({"frozen": True}, {}, "frozen"),
        ({"frozen": True, "behavior_exact": False}, {"prompt_length": 9}, "frozen"),
        ({}, {}, ""),
    ],
)
def test_only_exact_turns_are_trained(
    started_with: dict[str, Any], completed_with: dict[str, Any], reason: str
) -> None:
    """Holds invariant I2."""
    made = finished(
        session_after(started(**started_with), dispatched(), completed(ids(7, 8), **completed_with))
    )

    assert made.nodes[1].masked_reason == reason
    assert made.masked_tokens == ({reason: 2} if reason else {})
    assert sum(made.loss_mask) == (0 if reason else 2)


def test_the_temperature_of_the_log_probs_is_that_of_the_turn() -> None:
    made = finished(
        session_after(started(logprob_temperature=0.7), dispatched(), completed(ids(7, 8)))
    )
    old = finished(session_after(started(), dispatched(), completed(ids(7, 8))))

    assert [node.logprob_temperature for node in made.nodes] == [0.7, 0.7]
    assert [node.logprob_temperature for node in old.nodes] == [1.0, 1.0]


def test_a_turn_that_was_cut_is_kept_but_not_trained() -> None:
    made = finished(session_after(started(), dispatched(), progressed(ids(7))))

    assert made.tokens == ids(1, 2, 7)
    assert made.masked_tokens == {"cut": 1}
    assert not made.nodes[1].delivered


def two_samples(**setting: Any) -> SessionBuilder:
    """Return a session in which the agent goes on from the first of two samples."""
    return session_after(
        started("a", ids(1, 2), **setting),
        dispatched("a"),
        completed(ids(7), "a"),
        started("b", b"", parent_node=0, parent_end=2, prompt_length=2, **setting),
        dispatched("b"),
        completed(ids(8), "b", b"", prompt_hash=started("b", b"").prompt_hash, prompt_length=2),
        started("c", ids(3), parent_node=1, parent_end=1, prompt_length=4, **setting),
        dispatched("c"),
        completed(ids(9), "c", b"", prompt_hash=started("c", ids(3)).prompt_hash, prompt_length=4),
    )


def test_of_samples_of_one_prompt_those_gone_on_from_are_trained() -> None:
    made = finished(two_samples())

    assert made.masked_tokens == {"abandoned": 1}
    assert made.nodes[3].masked_reason == "abandoned"


def test_what_two_policies_answer_to_one_prompt_is_trained_by_both() -> None:
    """Two modules of an agent that ask the same are no samples of one."""
    again = {"prompt_hash": started("b", b"").prompt_hash, "prompt_length": 2}
    built = SessionBuilder().apply(
        opened(policies={"code": "q"}),
        started("a", ids(1, 2), policy="p"),
        dispatched("a"),
        completed(ids(7), "a"),
        started("b", b"", parent_node=0, parent_end=2, prompt_length=2, policy="q", module="code"),
        dispatched("b"),
        completed(ids(8), "b", b"", **again),
    )

    made = finished(built)

    assert made.masked_tokens == {}
    trained = {policy: chains(made, policy).chains for policy in ("p", "q")}
    assert [len(chain) for chain in trained.values()] == [1, 1]


def test_a_policy_may_train_all_samples_of_one_prompt() -> None:
    """Holds invariant I6."""
    made = finished(two_samples(siblings="all"))

    assert made.masked_tokens == {}
    assert sum(made.loss_mask) == 3
    trained = [chain.trained() for chain in chains(made, "p").chains]
    assert sorted(trained) == [1, 2]


def test_a_prompt_behind_none_of_a_sample_s_tokens_does_not_go_on_from_it() -> None:
    built = session_after(
        started("a", ids(1, 2)),
        dispatched("a"),
        completed(ids(7), "a"),
        started("b", b"", parent_node=1, parent_end=0, prompt_length=2),
        dispatched("b"),
        completed(ids(8), "b", b"", prompt_hash=started("b", b"").prompt_hash, prompt_length=2),
    )

    made = finished(built)

    assert [node.masked_reason for node in made.nodes] == ["", "abandoned", "", ""]


def test_tokens_of_uncertain_version_are_not_trained() -> None:
    spans = (
        VersionSpan(start=0, version_min=1, version_max=2),
        VersionSpan(start=1, version_min=2, version_max=2),
    )

    made = finished(session_after(started(), dispatched(), completed(ids(7, 8), spans=spans)))

    assert made.loss_mask == bytes([0, 0, 0, 1])
    assert made.masked_tokens == {"inexact_version": 1}
    assert (made.version_min, made.version_max) == (2, 2)


def test_tokens_of_no_told_version_are_not_trained() -> None:
    late = (VersionSpan(start=1, version_min=2, version_max=2),)

    made = finished(
        session_after(
            started("a"),
            dispatched("a"),
            completed(ids(7, 8), "a", spans=()),
            started("b"),
            dispatched("b"),
            completed(ids(7, 8), "b", spans=late),
        )
    )

    assert made.loss_mask == bytes([0, 0, 0, 0, 0, 0, 0, 1])
    assert made.masked_tokens == {"inexact_version": 3}
    assert (made.version_min, made.version_max) == (2, 2)


def test_an_interruption_leaves_one_seamless_turn() -> None:
    built = session_after(
        started(),
        dispatched(),
        interrupted(ids(7)),
        dispatched(dispatch=2, from_offset=1, worker="v"),
        completed(ids(8), token_offset=1, dispatch=2, worker="v"),
    )

    made = finished(built)

    assert (made.tokens, made.interrupted_turns) == (ids(1, 2, 7, 8), 1)
    assert sum(made.loss_mask) == 2


def test_the_rewards_of_a_turn_become_its_node_s() -> None:
    built = two_turns().apply(
        rewarded(Reward(value=0.25, name="format", **TURN), command_id="one"),
        rewarded(Reward(value=0.5, name="answer", **TURN), command_id="two"),
    )

    made = finished(built)

    assert [node.reward for node in made.nodes] == [None, 0.75, None, None]


def test_a_session_without_a_reward_says_so() -> None:
    made = trajectory(session_after(closed(), finalized()).session, 0)

    assert (made.status, made.rewards) == ("unrewarded", ())


def test_a_session_under_way_has_no_trajectory() -> None:
    with pytest.raises(ValueError, match="not finalized"):
        trajectory(session_after(started()).session, 0)


def test_a_session_too_large_for_its_topic_says_so_and_leaves_its_group() -> None:
    built = two_turns().apply(rewarded(), closed(), finalized())

    made = trajectory(built.session, 5, limit=100_000)

    assert (made.tokens, made.nodes, made.status, made.cause) == (
        b"",
        (),
        "aborted",
        "infrastructure",
    )
    assert made.reason.startswith("too_large")
    assert made.masked_tokens == {"too_large": 3}
    assert [reward.value for reward in made.rewards] == [1.0]


def test_a_session_that_was_given_up_has_the_same_bytes_where_the_rules_do_not_fail() -> None:
    end = (closed(command_id=None, reason=MANAGER_FAILED, at_ms=50), finalized(at_ms=51))
    begun = (started("a", ids(1, 2)), dispatched("a"))
    bad, good = (
        session_after(*begun, completed(ids(7), "a", ids(1, 2), message=message), rewarded(), *end)
        for message in (b'{"tool_calls":[', b'{"role":"assistant"}')
    )

    assert bad.session.failed and good.session.failed
    assert encode(trajectory(bad.session, 5)) == encode(trajectory(good.session, 5))
    assert trajectory(bad.session, 5).reason == MANAGER_FAILED
