"""Recorded sessions merged by other rules."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.recorded.merge.rewriting import rewriting
from seamlessflow.recorded.merge.rules import RECORDED, MergeRules
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.schemas.forks import history, of_session
from seamlessflow.schemas.records import Record, Reward, Trajectory
from tests.builders.records import sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.conversation import forked, recorded_prefix
from tests.builders.trajectories.partition_log import log_of
from tests.builders.trajectories.random_events import step

MASKED = {"abandoned": 1, "inexact_top_p": 1, "undelivered": 1}
END = (sessions.closed(), sessions.finalized())


def merged(events: Sequence[Record], rules: MergeRules = RECORDED) -> list[Session]:
    fold = Refold(LoggedPartition(5), rewrite=rewriting(rules))
    ended = [fold.apply(event, offset) for offset, event in enumerate(events)]
    return [session for session in ended if session is not None]


def rewritten(rules: MergeRules, *events: Record) -> Trajectory:
    """Return the merge of a session with these events, which are rewarded with 1 first."""
    log = (sessions.claimed(), sessions.opened(), sessions.rewarded(), *events, *END)
    (session,) = merged(log, rules)
    return trajectory(session, 5)


def turn(turn_id: str, prompt: bytes, answer: bytes, **started: object) -> list[Record]:
    """Return a turn whose prompt is given whole, so that it is recorded as a root of its own."""
    return [
        sessions.started(turn_id, prompt, **started),
        sessions.dispatched(turn_id=turn_id),
        sessions.completed(answer, turn_id, prompt),
    ]


def prompts(session: Session) -> dict[str, bytes]:
    tree = session.tree
    return {
        turn_id: tree.path(session_turn.prompt_node, tree.nodes[session_turn.prompt_node].length)
        for turn_id, session_turn in session.turns.items()
    }


@given(st.lists(st.integers(0, 2**31 - 1).map(step), max_size=120))
def test_threads_by_tokens_change_no_prompt_and_no_sampled_token(steps: list[object]) -> None:
    log = log_of(steps).log  # type: ignore[arg-type]
    before = {session.opened.session_id: session for session in merged(log)}
    for after in merged(log, MergeRules(threads="tokens")):
        recorded = before.pop(after.opened.session_id)
        assert prompts(after) == prompts(recorded)
        for old, new in zip(recorded.tree.nodes, after.tree.nodes, strict=True):
            if old.origin == "policy":
                assert (old.ids, old.logprobs, old.spans) == (new.ids, new.logprobs, new.spans)
    assert before == {}


def test_threads_by_tokens_share_what_prompts_have_in_common() -> None:
    first = turn("a", ids(1, 2), ids(3, 4))
    second = turn("b", ids(1, 2, 3, 4, 5), ids(6))
    recorded = rewritten(RECORDED, *first, *second)
    threaded = rewritten(MergeRules(threads="tokens"), *first, *second)
    assert len(recorded.tokens) == 4 * (2 + 2 + 5 + 1)
    assert threaded.tokens == ids(1, 2, 3, 4, 5, 6)
    assert (threaded.nodes[2].parent, threaded.nodes[2].parent_end) == (1, 2)
    assert threaded.match_rules == {"root": 1, "tokens": 1}


def test_a_prompt_that_is_not_the_recorded_one_is_masked() -> None:
    sampled = turn("a", ids(1, 2), ids(3, 4), prompt_hash=b"another")
    hashed = [sampled[0], sampled[1], replace(sampled[2], prompt_hash=b"another")]  # type: ignore[type-var]
    assert rewritten(RECORDED, *hashed).masked_tokens == {}
    for rules in (MergeRules(threads="tokens"), MergeRules(siblings="all")):
        assert rewritten(rules, *hashed).masked_tokens == {"prompt_mismatch": 2}


@pytest.mark.parametrize(
    ("rules", "masked"),
    [
        (RECORDED, MASKED),
        (MergeRules(siblings="all"), {"inexact_top_p": 1, "undelivered": 1}),
        (MergeRules(train_inexact=True), {"abandoned": 1, "undelivered": 1}),
        (MergeRules(train_undelivered=True), {"abandoned": 1, "inexact_top_p": 1}),
        (
            MergeRules(purpose="eval"),
            {"abandoned": 1, "inexact_top_p": 1, "undelivered": 1, "eval": 1},
        ),
    ],
    ids=str,
)
def test_rules_of_masks_replace_the_recorded_ones(
    rules: MergeRules, masked: dict[str, int]
) -> None:
    made = rewritten(
        rules,
        *turn("a", ids(1), ids(2)),
        *turn("b", ids(1), ids(3), parent_node=0, parent_end=1, suffix_ids=b""),
        *turn("c", ids(4), ids(5), behavior_exact=False, inexact_reason="top_p"),
        *turn("d", ids(6), ids(7), train_undelivered=False),
        sessions.undelivered(turn_id="d"),
    )
    assert {reason: count for reason, count in made.masked_tokens.items() if count} == masked


def test_the_return_is_a_weighted_sum_of_rewards_and_of_new_judgements() -> None:
    rewards = [
        sessions.rewarded(Reward(name=name, value=value), command_id=name, final=False)
        for name, value in (("correct", 1.0), ("format", 0.5))
    ]
    rules = MergeRules(
        return_of={"correct": 2.0, "format": 1.0, "style": 10.0, "reward": 0.0},
        judged={"s": Reward(name="style", value=0.1)},
    )
    values = {reward.name: reward.value for reward in rewritten(rules, *rewards).rewards}
    assert values == {"reward": 3.5, "correct": 1.0, "format": 0.5, "style": 0.1}


def test_the_return_counts_a_new_judgement_of_its_own_name_too() -> None:
    judged = {"s": Reward(value=0.25, source="replay")}
    (reward,) = rewritten(MergeRules(judged=judged, return_of={"reward": 2.0})).rewards
    assert (reward.name, reward.value) == ("reward", 0.5)


def test_a_judgement_replaces_the_recorded_reward_of_its_name() -> None:
    (reward,) = rewritten(
        MergeRules(judged={"s": Reward(value=0.25), "t": Reward(value=9)})
    ).rewards
    assert (reward.name, reward.value) == ("reward", 0.25)


def test_threads_by_tokens_keep_what_a_fork_copied() -> None:
    made = forked()
    opened = sessions.opened(session_id="fork", fork=recorded_prefix())
    started = [event for event in made.ask("new", *history(of_session(recorded_prefix(), "fork")))]
    events = [opened, *started, sessions.closed(session_id="fork")]
    log = [sessions.claimed(), *events, sessions.finalized(session_id="fork")]
    (recorded,) = merged(log)
    (threaded,) = merged(log, MergeRules(threads="tokens"))
    assert prompts(threaded) == prompts(recorded)
    assert trajectory(threaded, 5).tokens == trajectory(recorded, 5).tokens
    assert threaded.turns["new"].started.prompt_hash


def judged_late(*rewards: Reward) -> Trajectory:
    """Return the merge of a session that ended without its judge `kind`, with late rewards."""
    end = (sessions.closed(judges=("kind",)), sessions.finalized(reason="judge_failed"))
    log = (sessions.claimed(), sessions.opened(), *turn("a", ids(1, 2), ids(3, 4)), *end)
    (session,) = merged(log, MergeRules(late={"s": rewards}))
    return trajectory(session, 5)


def test_a_session_that_lacks_a_judge_counts_with_its_late_reward() -> None:
    without = judged_late()
    assert (without.status, without.cause) == ("unrewarded", "judge")
    of_turn = Reward(name="kind", value=0.25, scope="turn", turn_id="a", source="judge")
    made = judged_late(of_turn, Reward(name="kind", value=0.5, source="judge"))
    assert (made.status, made.cause) == ("complete", "policy")
    values = {(reward.scope, reward.turn_id): reward.value for reward in made.rewards}
    assert values == {("session", None): 0.5, ("turn", "a"): 0.25}


def test_a_late_reward_of_a_judge_that_answered_in_time_changes_nothing() -> None:
    rules = MergeRules(late={"s": (Reward(name="reward", value=9.0, source="judge"),)})
    (reward,) = rewritten(rules).rewards
    assert reward.value == 1.0
