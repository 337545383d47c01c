"""The order inside each move, and what becomes of failures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.rollout.probe.answers import EngineProbeFailed
from seamlessflow.producers.rollout.roles.moves import (
    Acquired,
    Load,
    Loaded,
    MoveFailed,
    NotStarted,
    Paused,
    Preload,
    Preloaded,
    Release,
    Released,
)
from seamlessflow.schemas.records import Sampling
from tests.builders.rollout.device_setup import (
    DeviceSetup,
    Spoilt,
    acquire,
    five_versions,
    weights,
)
from tests.builders.rollout.roles import policy


@pytest.fixture
def setup() -> DeviceSetup:
    return DeviceSetup()


def test_the_first_role_builds_the_engine_and_then_fixes_the_slot(setup: DeviceSetup) -> None:
    outcome = setup.do(acquire())
    assert isinstance(outcome, Acquired)
    assert (outcome.slot_offset, outcome.engine) == (99, setup.engine)
    assert setup.engine.calls == [
        ("verify", 0),
        ("parser",),
        ("build", 0),
        ("whole", 0),
        ("follow", 4),
    ]
    assert list(outcome.times.by_name) == ["start", "verify", "build", "probe", "slot"]


def test_weights_are_verified_then_loaded_in_a_pause_that_keeps_the_turns(
    setup: DeviceSetup,
) -> None:
    setup.do(acquire())
    assert isinstance(setup.do(Load(weights(1), policy())), Paused)
    outcome = setup.outcomes.get(timeout=60)
    assert isinstance(outcome, Loaded)
    assert setup.engine.calls == [
        ("verify", 1),
        ("pause", "keep"),
        ("load_weights", "v1", 1),
        ("resume",),
    ]


def test_a_release_ends_the_turns_and_puts_the_engine_to_sleep(setup: DeviceSetup) -> None:
    setup.do(acquire())
    outcome = setup.do(Release(2))
    assert isinstance(outcome, Released)
    assert outcome.free_bytes == 1_234
    assert list(outcome.times.by_name) == ["start", "pause", "sleep"]
    assert setup.engine.calls == [("pause", "abort"), ("sleep",)]


def test_a_role_taken_again_wakes_the_engine_and_loads_what_is_new(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    setup.do(acquire(5))
    assert setup.engine.calls == [
        ("verify", 5),
        ("wake",),
        ("load_weights", "v5", 5),
        ("resume",),
        ("short", 5),
        ("follow", 4),
    ]
    setup.do(Release(3))
    setup.do(acquire(5))
    assert ("load_weights", "v5", 5) not in setup.engine.calls


def test_weights_loaded_ahead_are_verified_before_and_not_touched_again(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    assert isinstance(setup.do(Preload(weights(5), policy())), Preloaded)
    assert setup.engine.calls == [("verify", 5), ("load_weights", "v5", 5)]
    assert isinstance(setup.do(acquire(5)), Acquired)
    assert setup.engine.calls == [("wake",), ("resume",), ("short", 5), ("follow", 4)]


def test_weights_of_an_engine_that_loads_awake_are_verified_ahead_and_once(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    five_versions(tmp_path)
    ahead = weights(4, tmp_path)
    setup.loads_asleep = False
    setup.do(acquire(0))
    setup.do(Release(2))
    assert isinstance(setup.do(Preload(ahead, policy())), Preloaded)
    assert setup.engine.calls == [("verify", 4)]
    assert isinstance(setup.do(replace(acquire(), weights=ahead)), Acquired)
    assert setup.engine.calls == [
        ("wake",),
        ("load_weights", ahead.directory, 4),
        ("resume",),
        ("short", 4),
        ("follow", 4),
    ]


def test_spoilt_weights_are_not_loaded_ahead(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    setup.do(Release(2))
    setup.spoilt.add(5)
    assert isinstance(setup.do(Preload(weights(5), policy())), NotStarted)
    assert setup.engine.calls == [("verify", 5)]


def test_other_weights_under_the_same_number_are_loaded(setup: DeviceSetup) -> None:
    setup.do(acquire(0))
    other = replace(weights(0), directory="elsewhere", manifest_sha256="other")
    setup.do(replace(acquire(0, assignment=2), weights=other))
    assert ("load_weights", "elsewhere", 0) in setup.engine.calls


def test_a_role_confirmed_leaves_the_engine_alone(setup: DeviceSetup) -> None:
    setup.do(acquire(0, assignment=1))
    assert isinstance(setup.do(acquire(0, assignment=2)), Acquired)
    assert setup.engine.calls == [("follow", 4)]


def test_spoilt_weights_are_noticed_before_the_engine_is_touched(setup: DeviceSetup) -> None:
    setup.do(acquire())
    setup.spoilt.add(1)
    outcome = setup.do(Load(weights(1), policy()))
    assert isinstance(outcome, NotStarted)
    assert isinstance(outcome.error, Spoilt)
    assert setup.engine.calls == [("verify", 1)]


@pytest.mark.parametrize(
    ("whole", "truncating", "trained", "starts"),
    [
        (True, {"top_p": 0.9}, "train_truncated", True),
        (False, {"top_p": 0.9}, "train_truncated", False),
        (False, {"top_k": 5}, "train_truncated", False),
        (False, {"top_p": 0.9}, "train_undelivered", True),
        (False, {"top_p": 1.0, "top_k": 0}, "train_truncated", True),
        (True, {"top_p": 0.9}, "train_inexact", True),
        (False, {"top_p": 0.9}, "train_inexact", False),
        (False, {"top_p": 1.0, "top_k": 0}, "train_inexact", True),
    ],
)
def test_truncated_turns_are_trained_only_with_log_probs_of_the_whole_vocabulary(
    setup: DeviceSetup, whole: bool, truncating: dict[str, Any], trained: str, starts: bool
) -> None:
    setup.whole_vocabulary = whole
    flags: dict[str, Any] = {trained: True}
    asked = replace(policy(), overrides=Sampling(**truncating), **flags)
    outcome = setup.do(replace(acquire(), policy=asked))
    assert isinstance(outcome, Acquired if starts else NotStarted)
    if isinstance(outcome, NotStarted):
        assert "policy.top_p = 1" in str(outcome.error)


def test_an_engine_that_fails_to_load_is_never_resumed(setup: DeviceSetup) -> None:
    def fail(call: str) -> None:
        if call == "load_weights":
            raise OSError("no space")

    setup.do(acquire())
    setup.engine.before = fail
    assert isinstance(setup.do(Load(weights(1), policy())), Paused)
    outcome = setup.outcomes.get(timeout=60)
    assert isinstance(outcome, MoveFailed)
    assert isinstance(outcome.error, OSError)
    assert setup.engine.calls == [("verify", 1), ("pause", "keep")]


@pytest.mark.parametrize("again", [False, True], ids=["built", "woken"])
def test_an_engine_that_fails_its_probe_gets_no_slot(setup: DeviceSetup, again: bool) -> None:
    if again:
        setup.do(acquire(0))
        setup.do(Release(2))
    setup.untrusted.add(1)
    outcome = setup.do(acquire(1))
    assert isinstance(outcome, MoveFailed)
    assert isinstance(outcome.error, EngineProbeFailed)
    assert ("follow", 4) not in setup.engine.calls


def test_closing_ends_the_engine(setup: DeviceSetup) -> None:
    setup.do(acquire())
    setup.device.close(10)
    assert setup.engine.calls[-1] == ("close",)
