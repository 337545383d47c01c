"""The trainer of one policy of several: it trains its own tokens of the sessions of all."""

import pytest

from seamlessflow.schemas.records import GroupDropped, GroupReady
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.roles.gang import GangWatch
from seamlessflow.trainer.steps.dataloader import NOTHING_OF_IT
from tests.builders.records import control
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.trajectories import Run, trajectory

BOTH = ("big", "tiny")
PROMPT = Run((1, 2), origin="prompt", trained=False)
FIRST = Run((3, 4, 5), turn="t0", parent=0, parent_end=2, policy="big")
SECOND = Run((6, 7), turn="t1", parent=1, parent_end=3, policy="tiny")


def fed(*names: str, runs: tuple[Run, ...] = (PROMPT, FIRST, SECOND)) -> FedDataloader:
    """Return the trainer of `tiny` with groups whose tasks name the policy `big`."""
    feed = FedDataloader(policies=BOTH)
    for name in names:
        for sample in range(2):
            session = f"{name}.{sample}.0"
            made = trajectory(runs, session, 1.0 - sample, name, sample, group_size=2, policy="big")
            feed.returned += feed.loader.add(made, 0, feed.offset, now_ms=0)
            feed.offset += 1
    return feed


def test_only_the_own_tokens_are_trained_and_the_others_are_not_counted_as_masked() -> None:
    batch = fed("g-0", "g-1").next()
    assert isinstance(batch, Batch)
    (chain, *_) = batch.chains()
    assert chain.tokens.ids_T[chain.tokens.trained_T].tolist() == [6, 7]
    assert [sum(prepared.masked().values()) for prepared in batch.groups] == [0, 0]
    credited = [
        trained_chain.tokens.advantages_T[trained_chain.tokens.trained_T].tolist()
        for trained_chain in batch.chains()
    ]
    by_session = [[1, 1], [-1, -1], [1, 1], [-1, -1]]
    assert credited == [pytest.approx(values, rel=1e-5) for values in by_session]


def test_a_group_without_a_turn_of_the_policy_is_dropped_as_no_loss() -> None:
    feed = fed(*(f"g-{number}" for number in range(12)), runs=(PROMPT, FIRST))
    ready, dropped, *_ = feed.returned
    assert isinstance(ready, GroupReady) and isinstance(dropped, GroupDropped)
    assert dropped.reason == NOTHING_OF_IT
    assert not feed.loader.ready
    assert feed.next() is None, "however many of them there are, no step is skipped"


def test_evaluations_and_sessions_of_strangers_are_left_alone() -> None:
    feed = fed()
    for purpose, policy in (("eval", "big"), ("train", "stranger")):
        made = trajectory((PROMPT, FIRST), purpose=purpose, policy=policy)
        assert not feed.loader.add(made, 0, 0, now_ms=0)


def test_what_another_trainer_writes_changes_no_state_but_the_offset() -> None:
    state = ControlState("tiny")
    state.apply(control.published(3, policy="tiny"), 0)
    state.apply(control.admitted("g-0", policy="big", version=40), 1)
    assert state.under_way["g-0"].version == 3, "its own version, not one of the other policy"

    before = {**state.to_json(), "offset": 0}
    others = (
        control.ready("g-0", policy="big"),
        control.dropped("g-0", policy="big"),
        control.committed(5, ["g-0"], policy="big"),
        control.consumed("g-0", 5, policy="big"),
        control.skipped(6, policy="big"),
        control.published(6, policy="big"),
        control.finished(9, policy="big"),
        control.admitted("e-0", policy="big", purpose="eval"),
        control.expired("e-0", policy="big"),
    )
    for offset, record in enumerate(others, 2):
        state.apply(record, offset)
    assert {**state.to_json(), "offset": 0} == before
    assert state.offset == 2 + len(others)


def test_the_gang_of_another_policy_is_not_the_own_one() -> None:
    watch = GangWatch(policy="tiny")
    watch.apply(control.assigned("w", "train", 1, gang_epoch=1, policy="tiny"))
    watch.apply(control.assigned("v", "train", 2, gang_epoch=2, policy="big"))
    assert (watch.gang_epoch, set(watch.members)) == (1, {"w"})
    assert watch.counts(control.started(["w"], policy="tiny"))
    assert not watch.counts(control.started(["v"], policy="big"))


def test_a_group_of_another_policys_role_is_neither_awaited_nor_expired() -> None:
    state = ControlState("tiny")
    for offset, record in enumerate(
        [
            control.admitted("g-big", policy="big", role="one"),
            control.admitted("g-tiny", policy="tiny", role="two", version=4),
            control.expired("g-big", policy="big"),
        ]
    ):
        state.apply(record, offset)
    assert state.under_way.keys() == {"g-tiny"} and not state.expired
    assert state.under_way["g-tiny"].version == 4
