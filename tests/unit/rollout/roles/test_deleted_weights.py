"""Versions that the trainer deletes while a rollout process reads them."""

from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.infra.weights.versions import retain, version_directory, versions
from seamlessflow.producers.rollout.roles.moves import (
    Acquire,
    Acquired,
    Load,
    Loaded,
    MoveFailed,
    NotStarted,
    Paused,
    Preload,
    Release,
)
from tests.builders.rollout.device_setup import DeviceSetup, acquire, five_versions, weights
from tests.builders.rollout.roles import policy


@pytest.fixture
def setup() -> DeviceSetup:
    return DeviceSetup()


def test_weights_that_were_verified_ahead_and_deleted_are_noticed_before_the_engine_is_woken(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    five_versions(tmp_path)
    ahead = weights(0, tmp_path)
    setup.loads_asleep = False
    setup.do(acquire(7))
    setup.do(Release(2))
    setup.do(Preload(ahead, policy()))
    retain(tmp_path, 3)
    setup.spoilt.add(0)
    assert isinstance(setup.do(replace(acquire(), weights=ahead)), NotStarted)
    assert setup.engine.calls == [("verify", 0)]


def test_weights_stay_on_disk_while_an_engine_is_built_with_them(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    five_versions(tmp_path)
    setup.while_building = lambda: retain(tmp_path, 3)
    assert isinstance(setup.do(replace(acquire(), weights=weights(0, tmp_path))), Acquired)
    assert list(versions(tmp_path)) == [0, 2, 3, 4]
    retain(tmp_path, 3)
    assert list(versions(tmp_path)) == [2, 3, 4]


def test_weights_stay_on_disk_while_a_running_engine_loads_them(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    def publishes(call: str) -> None:
        if call == "load_weights":
            retain(tmp_path, 3)

    five_versions(tmp_path)
    setup.do(acquire(7))
    setup.engine.before = publishes
    assert isinstance(setup.do(Load(weights(1, tmp_path), policy())), Paused)
    assert isinstance(setup.outcomes.get(timeout=60), Loaded)
    assert list(versions(tmp_path)) == [1, 2, 3, 4]


def test_an_engine_is_built_with_newer_weights_if_the_first_were_deleted(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    def deletes() -> None:
        version_directory(tmp_path, 0).rmdir()
        raise OSError("no such model")

    five_versions(tmp_path)
    setup.while_building = deletes
    outcome = setup.do(replace(acquire(), weights=weights(0, tmp_path)))
    assert isinstance(outcome, NotStarted)
    assert "deleted" in str(outcome.error)
    setup.while_building = lambda: None
    newest = replace(acquire(), weights=weights(4, tmp_path))
    assert isinstance(setup.do(newest), Acquired)


def test_an_engine_that_cannot_be_built_with_weights_that_are_there_fails(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    def fails() -> None:
        raise OSError("no memory")

    five_versions(tmp_path)
    setup.while_building = fails
    assert isinstance(setup.do(replace(acquire(), weights=weights(4, tmp_path))), MoveFailed)


def test_a_shown_version_is_compared_under_the_number_that_it_was_made_with(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    facts = Manifest(policy="main", version=12, optimizer_step=12, lineage="a", dtype="float32")
    made = publish(tmp_path, facts, lambda draft: None, sync=False).weights
    shown = replace(policy(), frozen=True)
    outcome = setup.do(Acquire(1, 4, replace(made, version=3), shown))
    assert isinstance(outcome, Acquired)
    assert setup.engine.calls[0] == ("verify", 12)
    assert ("build", 3) in setup.engine.calls, "its tokens have the number of the frozen policy"


def test_a_past_version_that_was_deleted_by_hand_is_named(
    setup: DeviceSetup, tmp_path: Path
) -> None:
    shown = replace(policy(), frozen=True)
    outcome = setup.do(Acquire(1, 4, weights(3, tmp_path), shown))
    assert isinstance(outcome, NotStarted)
    assert str(version_directory(tmp_path, 3)) in str(outcome.error)
