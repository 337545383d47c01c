"""Groups that go on from an ended session: its return is in their baseline, its tokens are context.

Holds invariant I6.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from seamlessflow.schemas.forks import history, of_session
from seamlessflow.schemas.records import (
    ForkOrigin,
    GroupDropped,
    GroupReady,
    Record,
    Reward,
)
from seamlessflow.trainer.data.advantages import ReturnRules, estimator
from seamlessflow.trainer.data.batch import Batch, Prepared, prepare
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from seamlessflow.trainer.data.credit.phase import with_advantages
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.grouping import Group, Grouping
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.data.pairs import PairRules
from seamlessflow.trainer.data.selection import SelectionRules
from seamlessflow.trainer.data.sessions import ValidSession, read
from tests.builders.records.content import ids, message
from tests.builders.trainer.groups import NOW, RULES, group
from tests.builders.trainer.trajectories import one_turn, trajectory
from tests.builders.trajectories.conversation import Conversation, recorded_prefix
from tests.builders.trajectories.session_builder import finished

ORIGIN = ForkOrigin(partition=0, session_id="parent", turn_id="b", offset=7, parent_return=1.0)


def going_on(*rewards: float, parent_return: float | None = 1.0) -> Group:
    """Return a group of one-turn sessions that go on from an ended one."""
    origin = replace(ORIGIN, parent_return=parent_return)
    sessions: list[ValidSession] = []
    for number, reward in enumerate(rewards):
        made = read(replace(one_turn(f"g.{number}.0", reward, 3, 3), fork=origin), "tiny", 0, 0)
        assert isinstance(made, ValidSession)
        sessions.append(made)
    return Group("g", tuple(sessions))


def advantages(prepared: Prepared) -> list[float]:
    """Return the first advantage of each chain."""
    chains = [chain.tokens for chain in prepared.chains]
    return [float(tokens.advantages_T[tokens.trained_T][0]) for tokens in chains]


def normal(returns: Sequence[float]) -> list[float]:
    values = np.array(returns)
    return [float(value) for value in (values - values.mean()) / values.std()]


@pytest.mark.parametrize("rewards", [(0.0, 1.0), (0.0, 0.0), (0.0,), (1.0, 0.5, 0.25)])
def test_the_parent_s_return_is_one_more_of_the_baseline(rewards: tuple[float, ...]) -> None:
    prepared = prepare(going_on(*rewards), NOW, RULES)
    assert advantages(prepared) == pytest.approx(normal([*rewards, 1.0])[:-1], rel=1e-4)
    assert prepared.filtered == ""


def test_a_group_that_ends_as_its_parent_did_has_no_advantage() -> None:
    assert prepare(going_on(1.0, 1.0), NOW, RULES).filtered == "zero_variance"


def test_forks_of_a_file_have_no_parent_in_their_baseline() -> None:
    forked, plain = going_on(1.0, 0.0, parent_return=None), group("g", 1.0, 0.0)
    assert advantages(prepare(forked, NOW, RULES)) == advantages(prepare(plain, NOW, RULES))


def test_a_step_records_the_new_sessions_alone() -> None:
    prepared = prepare(going_on(0.0, 1.0), NOW, RULES)
    batch = Batch(0, (prepared,))
    (member,) = batch.members()
    assert member.sessions == ("g.0.0", "g.1.0")
    assert batch.trained_tokens().keys() == {"g.0.0", "g.1.0"}
    assert facts(batch, NOW)["reward_mean"] == 0.5


def test_estimators_of_a_whole_batch_see_the_parent_too() -> None:
    rules = replace(RULES, estimator=estimator("grpo_batch", ReturnRules()))
    batch = Batch(0, (prepare(going_on(0.0, 0.0), NOW, rules),))
    estimate = BATCH_ESTIMATORS["grpo_batch"].estimate
    (credited,) = with_advantages(batch, lambda groups: estimate(groups, ReturnRules())).groups
    assert all(value < 0 for value in advantages(credited))


@pytest.mark.parametrize("name", ["extremes", "max_variance", "balanced"])
def test_a_selection_chooses_among_the_new_sessions(name: str) -> None:
    selection = SelectionRules(name=name, best=1, worst=1, keep=2)
    prepared = prepare(going_on(0.0, 0.5, 0.75, 0.25), NOW, replace(RULES, selection=selection))
    assert len(prepared.group.sessions) == 4
    assert len({chain.session_id for chain in prepared.chains}) == 2


def test_no_pair_has_the_parent() -> None:
    rules = replace(RULES, pairs=PairRules(name="extremes"))
    prepared = prepare(going_on(0.0, 0.5), NOW, rules)
    (pair,) = prepared.pairs
    assert pair.names == ("g.1.0", "g.0.0")


def test_metrics_say_how_many_ended_otherwise() -> None:
    groups = [prepare(going_on(*returns), NOW, RULES) for returns in [(1.0, 1.0), (1.0, 0.0)]]
    figures = facts(Batch(0, tuple(groups)), NOW)
    assert (figures["forked_groups"], figures["forked_other_share"]) == (2, 0.5)
    assert "forked_groups" not in facts(Batch(0, (prepare(group("h", 1, 0), NOW, RULES),)), NOW)


def test_a_ready_group_says_where_its_sessions_begin_on_the_log() -> None:
    made = replace(one_turn("g.0.0", 1.0), first_offset=41, turns=3)
    session = read(made, "tiny", 0, 0)
    (ready,) = (record for record in Grouping().add(session, 0) if isinstance(record, GroupReady))
    assert (ready.first_offsets, ready.lengths, ready.turns) == ((41,), (3,), (3,))


def test_a_group_that_cannot_begin_is_dropped_with_the_reason() -> None:
    grouping = Grouping()
    reason = "turn 2 of session parent: retention removed its events"
    records: list[Record] = []
    for sample in range(2):
        made = trajectory((), f"g.{sample}.0", None, "g", sample, group_size=2, cause="setting")
        ended = replace(made, status="aborted", reason=reason)
        records += grouping.add(read(ended, "tiny", 0, sample), 0)
    *failed, dropped = records
    assert len(failed) == 2
    assert isinstance(dropped, GroupDropped)
    assert dropped.reason == "failed"
    assert dropped.detail.endswith(reason)


def test_the_prefix_stands_once_in_the_tree_and_none_of_it_is_trained() -> None:
    prefix = recorded_prefix()
    prefix = replace(prefix, origin=replace(prefix.origin, parent_return=0.0))
    sessions = []
    for number, token in enumerate((50, 60)):
        name = f"g.{number}.0"
        made = Conversation(name, fork=prefix)
        made.ask("new", *history(of_session(prefix, name)))
        made.answer("new", ids(token, token + 1, 0), message("assistant", "better"))
        ended = replace(finished(made), cause="policy", rewards=(Reward(value=number),))
        session = read(ended, "p", 0, 0)
        assert isinstance(session, ValidSession)
        assert session.source.parent_return == 0.0
        sessions.append(session)

    chains = [chain for session in sessions for chain in session.chains]
    (batch,) = pack(chains, 10_000, "tree", units_C=np.zeros(2, np.int64))

    assert batch.ids_BT.shape == (1, prefix.length + 2 * 3)
    assert sorted(batch.targets_N.tolist()) == sorted([50, 51, 0, 60, 61, 0])
