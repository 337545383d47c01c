"""Explorations at the trainer: reported once, never trained, and compared with what is."""

from dataclasses import replace

import pytest

from seamlessflow.schemas import records as r
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.steps.dataloader import EXPIRY_LATEST_MS
from tests.builders.records import control
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES

EXPLORED = control.admitted("e", purpose="explore")


def test_an_exploration_is_reported_with_returns_and_texts_and_is_in_no_batch() -> None:
    feed = FedDataloader(EXPLORED)
    for sample, reward in enumerate((1.0, 0.0)):
        feed.session("e", sample, reward, purpose="explore")
    (ready,) = feed.returned
    assert isinstance(ready, r.GroupReady)
    assert ready.returns == (1.0, 0.0)
    assert len(ready.texts) == 2
    feed.group("g-0")
    assert feed.next() is None


def test_a_recording_is_trained_without_its_explorations() -> None:
    feed = FedDataloader(rules=replace(RULES, recorded=True))
    for sample in range(2):
        feed.session("e", sample, 1.0, purpose="explore")
    assert feed.returned == []


@pytest.mark.parametrize("end", [control.ready("e"), control.dropped("e", "failed")])
def test_an_exploration_that_is_over_takes_no_session_after_a_restart(end: r.GroupReady) -> None:
    feed = FedDataloader(EXPLORED, end)
    for sample in range(2):
        feed.session("e", sample, 1.0, purpose="explore")
    assert feed.returned == []


def test_explorations_with_equal_and_with_different_returns_are_counted() -> None:
    feed = FedDataloader(*(replace(EXPLORED, group_id=name) for name in "abc"))
    for group, rewards in {"a": (1.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 0.0)}.items():
        for sample, reward in enumerate(rewards):
            feed.session(group, sample, reward, purpose="explore")
    metrics = feed.loader.drop_metrics()
    assert (metrics["explored_equal"], metrics["explored_mixed"]) == (2.0, 1.0)
    assert "sessions_ended" not in metrics


def test_an_exploration_at_its_deadline_is_ready_with_the_sessions_it_has() -> None:
    feed = FedDataloader(EXPLORED)
    feed.session("e", 0, 1.0, purpose="explore")
    feed.apply(control.expired("e"))
    (ready,) = feed.loader.expirations(EXPIRY_LATEST_MS)
    assert isinstance(ready, r.GroupReady)
    assert (ready.returns, len(ready.texts)) == ((1.0,), 1)
    assert feed.loader.drop_metrics() == {"explored_equal": 1.0}


def test_no_step_waits_for_an_exploration() -> None:
    state = ControlState("tiny")
    state.apply(EXPLORED, 0)
    assert not state.under_way
    restored = ControlState.from_json(state.to_json())
    assert restored.exploring == {"e"}
    restored.apply(control.ready("e"), 1)
    assert not restored.ready
    assert restored.over == {"e"}


def test_a_state_of_before_explorations_has_none() -> None:
    values = {**ControlState("tiny").to_json()}
    del values["exploring"]
    assert ControlState.from_json(values).exploring == set()


def test_the_share_of_sessions_that_repeat_the_explored_text_is_a_metric() -> None:
    explored = FedDataloader(EXPLORED)
    explored.session("e", 0, 1.0, purpose="explore")
    explored.session("e", 1, 0.0, purpose="explore")
    (ready,) = explored.returned
    assert isinstance(ready, r.GroupReady)
    feed = FedDataloader()
    for group in ("g-0", "g-1"):
        for sample, text in enumerate((ready.texts[0], "another")):
            first = r.SeedSession(session_id=f"e.{sample}.0", text=text, value=1.0)
            feed.session(group, sample, 1.0 - sample, seed_session=first)
    batch = feed.next()
    assert isinstance(batch, Batch)
    figures = facts(batch, feed.loader.clock(0))
    assert (figures["sampled_again"], figures["equal_texts"]) == (4.0, 0.5)
